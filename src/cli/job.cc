#include <algorithm>
#include <charconv>
#include <filesystem>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/printable.h"
#include "trireme/base/small_file.h"
#include "trireme/base/text.h"
#include "trireme/job/job_script.h"

#include "cli/cluster_limits.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/planning.h"
#include "cli/sbatch.h"
#include "cli/site_file.h"
#include "cli/subprocess.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

struct JobArguments {
  std::vector<std::string> templates;
  std::string site, output, plan, plan_network;
  bool submit = false;
  GivenKeys keys;
  JobRequest request;
  Config config;
};

void declare(Options& options, JobArguments& given) {
  options.add_positional("TEMPLATE", given.templates,
                         "one that came with the program (single_node, several_nodes, "
                         "several_nodes_gpu, sweep, chain, islands, scaling), or a file");
  options.add("site", given.site, "file",
              "what is particular to the cluster; without it that of TRIREME_SITE, else "
              "share/trireme/jobs/site.ini, which shows all keys");
  options.add("output", given.output, "file", "write the script there and not to the terminal");
  options.paths({"site", "output"});
  options.add(
      "plan", given.plan, "name",
      "search the fastest layout first, on such GPUs (as trireme plan --gpu) or on what such "
      "a file describes; keys that are given stay; empty: no search");
  options.add("plan-network", given.plan_network, "name", "as trireme plan --network");
  options.add("submit", given.submit, "", "hand it to sbatch");
  add_job_keys(options, given.request);
  add_config_keys(options, given.config);
}

JobTemplate find_template(const std::vector<std::string>& given, const fs::path& folder) {
  std::vector<std::string> known;
  const auto names = names_in(folder.string(), ExitStatus::kUsage);
  for (const fs::path file : names.value_or(std::vector<std::string>())) {
    if (file.extension() != ".sbatch") continue;
    const JobTemplate found{file.stem().string(),
                            read_small_file("the template", (folder / file).string())};
    if (found.uses("OPTIONS")) known.push_back(found.name);  // others are complete scripts
  }
  const std::string list = fmt::format("{}", fmt::join(known, ", "));
  if (given.size() != 1) {
    throw ConfigError(fmt::format("job takes one template: one of {}, or a file", list));
  }
  const std::string& name = given[0];
  if (std::find(known.begin(), known.end(), name) != known.end()) {
    return {name, read_small_file("the template", (folder / (name + ".sbatch")).string())};
  }
  if (look_ahead(name, ExitStatus::kUsage).is_there()) {
    return {name, read_small_file("the template", name)};
  }
  const auto nearest = nearest_name(name, known);
  throw ConfigError(fmt::format("template '{}' is neither a file nor one of {}{}", shown(name),
                                list, nearest ? fmt::format("; did you mean {}?", *nearest) : ""));
}

std::string replaced(std::string text, std::string_view pattern, const std::string& value) {
  for (std::size_t at = 0; (at = text.find(pattern, at)) != std::string::npos; at += value.size())
    text.replace(at, pattern.size(), value);
  return text;
}

// Slurm makes no folders: a job without one for its log would end without a word.
void make_log_folder(const std::string& log, const std::string& job_name) {
  const std::string path = replaced(log, "%x", job_name);
  const std::string folder = fs::path(path).parent_path().string();
  if (folder.find('%') != std::string::npos) {
    throw ConfigError(
        fmt::format("--log {}: Slurm makes no folders, so the name of one may hold %x, the job's "
                    "name, but nothing that only Slurm knows",
                    shown(log)));
  }
  make_folders(folder, ExitStatus::kRunFolder);
}

// The command for a script in a file: its lines as arguments too, if some variable would win
// against them.
std::string command_for(const std::string& script, const std::string& file) {
  bool by_variables = false;
  for (char** variable = environ; *variable != nullptr; ++variable) {
    by_variables |= std::string_view(*variable).starts_with("SBATCH_");
  }
  std::vector<std::string> words{"sbatch"};
  if (by_variables) words = sbatch_command(script);
  words.push_back(file.starts_with('-') ? "./" + file : file);
  for (std::string& word : words) word = shell_word(word);
  return fmt::format("{}", fmt::join(words, " "));
}

// Returns the file of the log of a job, as far as that is known now.
std::string log_of(const std::string& log, const std::string& name, const std::string& job) {
  const std::string named = replaced(replaced(log, "%x", name), "%j", job);
  return replaced(replaced(named, "%A", job), "%a", "N");
}

void submit(const std::string& script, const JobArguments& given, const std::string& log) {
  const Finished done = submit_script(script, {}, "--submit");
  if (!done.errors.empty()) report_line(one_line(done.errors));
  const std::string said = one_line(done.output);
  print_line(said);
  const std::string job = said.substr(said.find_last_of(' ') + 1);
  if (job.empty() || job.find_first_not_of("0123456789") != std::string::npos) return;
  const std::string file = log_of(log, given.request.name, job);
  const std::string& run = given.config.run.folder;
  if (!given.request.islands.array.empty()) {
    print_line(fmt::format(
        "logs: {}, of island-N; trireme top {} shows where the run stands, squeue -j {} the jobs",
        file, shell_word(run), job));
    return;
  }
  print_line(fmt::format("log: {}; run: {}; squeue -j {} shows where it stands", file, run, job));
}

// With --plan, gives the configuration the fastest layout on the job's nodes. Throws ConfigError
// where nothing fits.
void plan_layout(JobArguments& given) {
  if (given.plan.empty()) return;
  const Planner planner(plan_request(given.plan, given.plan_network, given.request.tasks_per_node),
                        given.config, given.keys);
  constexpr int kKept = 10;
  const PlannedNodes planned = planner.best_on(given.request.nodes.most, kKept);
  const plan::PlannedLayout& best = planned.found.best.front();
  given.config = planner.planned_config(best);
  report_line(fmt::format("planned for {}: {}; a step takes {} ({} to {})", planner.description(),
                          layout_flags(best.layout), time_text(best.step.seconds),
                          time_text(best.step.low), time_text(best.step.high)));
}

ExitStatus write_job(JobArguments given) {
  plan_layout(given);
  NamedOutput output(given.output);
  const fs::path program = fs::read_symlink("/proc/self/exe");
  const std::optional<fs::path> found = find_jobs_folder();
  if (!found) {
    throw ConfigError(fmt::format("the job templates are missing: no share/trireme/jobs beside {}",
                                  program.string()));
  }
  const fs::path& folder = *found;
  const JobTemplate job_template = find_template(given.templates, folder);
  Site site = read_site(given.site);
  check_job_keys(given.request);
  site.partition = given.request.partition.value_or(site.partition);
  site.account = given.request.account.value_or(site.account);
  const JobPlan plan =
      plan_job(job_template, given.config, given.request, cluster_limits(site), facts_to_check);
  for (const std::string& remark : job_remarks(plan)) report_line(remark);
  std::string script = job_script(
      job_template, given.config, given.request, site, plan,
      {program.string(), read_small_file("the template's part", (folder / "step.sh").string())});
  const std::string log = log_pattern(job_template, given.request);
  if (given.submit || output.is_there()) make_log_folder(log, given.request.name);
  output.write_whole(script);
  if (given.submit) {
    submit(script, given, log);
  } else if (output.is_there() && look_at(given.output, ExitStatus::kUsage).is_file()) {
    print_line(command_for(script, given.output));
  } else if (!output.is_there()) {
    print_bytes(script);
  }
  return ExitStatus::kDone;
}

}  // namespace

Work parse_job(const Arguments& arguments) {
  JobArguments given;
  Options options("trireme job TEMPLATE [--config FILE] [--site FILE] [--SECTION.KEY VALUE]...",
                  true);
  declare(options, given);
  options.for_job();
  options.parse(arguments, read_run_config);
  if (options.help_requested()) return show_help(options.description());
  given.keys = chosen_keys(options);
  require_single_process("job");
  begin_outputs({given.output});
  return {.alone = [given = std::move(given)] { return write_job(given); }, .on_ranks = {}};
}

}  // namespace trireme::cli
