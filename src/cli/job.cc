#include <algorithm>
#include <charconv>
#include <filesystem>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/printable.h"
#include "trireme/base/small_file.h"
#include "trireme/train/job_script.h"

#include "cli/cluster_limits.h"
#include "cli/commands.h"
#include "cli/outputs.h"
#include "cli/site_file.h"
#include "cli/subprocess.h"

namespace trireme::cli {
namespace {

namespace fs = std::filesystem;

struct JobArguments {
  std::vector<std::string> templates;
  std::string site, output;
  bool submit = false;
  JobRequest request;
  Config config;
};

void declare(Options& options, JobArguments& given) {
  options.add_positional("TEMPLATE", given.templates,
                         "one that came with the program (single_node, several_nodes, "
                         "several_nodes_gpu, sweep, chain, scaling), or a file");
  options.add("site", given.site, "file",
              "what is particular to the cluster; without it that of TRIREME_SITE, else "
              "share/trireme/jobs/site.ini, which shows all keys");
  options.add("output", given.output, "file", "write the script there and not to the terminal");
  options.add("submit", given.submit, "", "hand it to sbatch");
  add_job_keys(options, given.request);
  add_config_keys(options, given.config);
}

JobTemplate find_template(const std::vector<std::string>& given, const fs::path& folder) {
  std::vector<std::string> known;
  const auto names = names_in(folder.string(), ExitStatus::kUsage);
  for (const fs::path file : names.value_or(std::vector<std::string>())) {
    if (file.extension() == ".sbatch") known.push_back(file.stem().string());
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

std::string one_line(std::string text) {
  while (text.ends_with('\n')) text.pop_back();
  std::replace(text.begin(), text.end(), '\n', ';');
  return text;
}

void submit(const std::string& script) {
  const auto done = run_program({"sbatch"}, script);
  if (!done)
    throw ConfigError("there is no sbatch in the PATH: leave --submit out to see the script");
  if (done->status != 0) {
    throw ConfigError(fmt::format("sbatch refused the job: {}", one_line(done->errors)));
  }
  if (!done->errors.empty()) report_line(one_line(done->errors));
  print_line(one_line(done->output));
}

ExitStatus write_job(const JobArguments& given) {
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
  output.write_whole(script);
  if (given.submit) {
    submit(script);
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
  options.parse(arguments, read_run_config);
  if (options.help_requested()) return show_help(options.description());
  require_single_process("job");
  begin_outputs({given.output});
  return {.alone = [given = std::move(given)] { return write_job(given); }, .on_ranks = {}};
}

}  // namespace trireme::cli
