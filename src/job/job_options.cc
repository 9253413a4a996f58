#include <algorithm>
#include <cstdlib>

#include <fmt/format.h>

#include "trireme/base/byte_size.h"
#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/job/job_script.h"

namespace trireme {
namespace {

constexpr std::int64_t kMib = std::int64_t{1} << 20, kMostMib = std::int64_t{1} << 40;

// Whether a character has no special meaning for a shell or for sbatch.
bool is_plain(char c) {
  constexpr std::string_view kPlain = "_-+=.,:/%@[]";
  const bool letter = (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
  return letter || (c >= '0' && c <= '9') || kPlain.find(c) != std::string_view::npos;
}

// Checks values on #SBATCH lines, because no way of quoting works in every version of Slurm.
void check_plain(const std::string& key, std::string_view text, std::string_view also = "") {
  for (const char c : text) {
    if (is_plain(c) || also.find(c) != std::string_view::npos) continue;
    throw ConfigError(fmt::format(
        "{} = {}: the character '{}' cannot stand there; letters, digits and _-+=.,:/%@[] can", key,
        shown(text), printable(std::string_view(&c, 1))));
  }
}

}  // namespace

Site site_from_ini(std::string_view text, const std::string& origin) {
  Site site;
  Options options("");
  options.add("slurm.partition", site.partition, "", "partition");
  options.add("slurm.account", site.account, "", "account");
  options.add("slurm.qos", site.qos, "", "quality of service");
  options.add("slurm.constraint", site.constraint, "", "features of the nodes");
  options.add("slurm.mpi", site.mpi, "", "srun --mpi", not_empty());
  options.add("slurm.gres_name", site.gres_name, "", "the GPUs' name", not_empty());
  std::optional<MebibyteSize> memory, gpu_memory;
  options.add("slurm.memory", memory, "MiB", "memory of a node", between(1, kMostMib));
  options.add("slurm.gpu_memory", gpu_memory, "MiB", "memory of a GPU", between(1, kMostMib));
  options.add("slurm.asks_memory", site.asks_memory, "", "whether jobs ask for memory (--mem)");
  options.add("slurm.extra", site.extra, "", "more options of sbatch");
  options.add("slurm.srun", site.srun, "", "more options of srun");
  options.add("environment.modules", site.modules, "", "modules to load");
  options.add("environment.variables", site.variables, "", "variables to export");
  options.add("environment.setup", site.setup, "", "shell to run before the step");
  options.parse_ini(text, origin);
  if (memory) site.memory = memory->count;
  if (gpu_memory) site.gpu_memory = gpu_memory->count;
  const std::pair<const char*, const std::string*> plain[] = {{"slurm.partition", &site.partition},
                                                              {"slurm.account", &site.account},
                                                              {"slurm.qos", &site.qos},
                                                              {"slurm.mpi", &site.mpi},
                                                              {"slurm.gres_name", &site.gres_name}};
  for (const auto& [key, value] : plain) check_plain(fmt::format("{}: {}", origin, key), *value);
  check_plain(origin + ": slurm.constraint", site.constraint, "&|*()");
  check_plain(origin + ": slurm.extra", site.extra, " &|*()");
  check_plain(origin + ": slurm.srun", site.srun, " &|*()");
  return site;
}

void check_job_keys(const JobRequest& request) {
  check_plain("job.name", request.name);
  check_plain("job.time", request.time);
  if (request.log) check_plain("job.log", *request.log);
  check_plain("job.partition", request.partition.value_or(""));
  check_plain("job.account", request.account.value_or(""));
  check_plain("job.srun", request.srun, " &|*()");
  check_plain("job.sbatch", request.sbatch, " &|*()?!");
  check_plain("job.dependency", request.dependency, "?");
}

std::string read_value(std::string_view text, NodeRange& value, const Limit& limit) {
  const std::size_t dash = text.find('-', 1);
  NodeRange range;
  std::string problem = read_value(text.substr(0, dash), range.least, limit);
  range.most = range.least;
  if (problem.empty() && dash != std::string_view::npos) {
    problem = read_value(text.substr(dash + 1), range.most, limit);
  }
  if (problem.empty() && range.least > range.most) problem = "the first number must not be larger";
  if (problem.empty()) value = range;
  return problem;
}

std::string write_value(const NodeRange& value) {
  return value.least == value.most ? std::to_string(value.most)
                                   : fmt::format("{}-{}", value.least, value.most);
}

std::string read_value(std::string_view text, IslandNumbers& value, const Limit& limit) {
  if (text.find_first_of(",-") == std::string_view::npos) {
    int last = 0;
    std::string problem = read_value(text, last, limit);
    if (problem.empty()) value.array = fmt::format("1-{}", last);
    return problem;
  }
  std::vector<NodeRange> parts;
  for (const std::string& part : split_list(text)) {
    NodeRange range;
    std::string problem = read_value(part, range, limit);
    if (!problem.empty()) return problem;
    parts.push_back(range);
  }
  std::ranges::sort(parts, {}, &NodeRange::least);
  IslandNumbers numbers;
  for (std::size_t i = 0; i < parts.size(); ++i) {
    if (i > 0 && parts[i].least <= parts[i - 1].most) {
      return fmt::format("{} is there twice", parts[i].least);
    }
    numbers.array += fmt::format("{}{}", i == 0 ? "" : ",", write_value(parts[i]));
  }
  // "9" would be the first nine.
  if (parts.size() == 1) numbers.array = fmt::format("{}-{}", parts[0].least, parts[0].most);
  value = std::move(numbers);
  return "";
}

// They are in rising order.
int IslandNumbers::most() const {
  return std::atoi(array.c_str() + array.find_last_of(",-") + 1);
}

std::string write_value(const IslandNumbers& value) {
  return value.array;
}

void add_job_keys(Options& options, JobRequest& request) {
  options.add("job.nodes", request.nodes, "nodes",
              "to ask for; 2-4: from 2 to 4, and each start takes the grid that fits",
              between(1, limits::kRanks));
  options.add("job.tasks_per_node", request.tasks_per_node, "ranks",
              "on each node; with GPUs one for each", between(1, 65536));
  options.add("job.cpus_per_task", request.cpus_per_task, "cores", "of each rank",
              between(1, 65536));
  options.add(
      "job.memory", request.memory, "MiB a node",
      "to ask for: 1500, 1500M, 64G, 64 GiB; auto: twice the estimate, at most what a node has",
      not_empty());
  options.add("job.time", request.time, "", "limit, as sbatch takes it", not_empty());
  options.add("job.name", request.name, "", "of the job", not_empty());
  options.add("job.log", request.log, "file",
              "%x is the job's name, %j its number; auto: %x-%j.out, of an array %x-%A_%a.out",
              not_empty());
  options.add("job.grace", request.grace, "seconds",
              "chain: so long before the limit the checkpoint is asked for",
              between(1, limits::kSeconds));
  options.add("job.restarts", request.restarts, "times",
              "the job may queue itself again, so that no job does so for ever",
              between(0, limits::kCount));
  options.add("job.failures", request.failures, "in a row",
              "the job ends after so many failures without a new checkpoint between",
              between(1, limits::kCount));
  options.add("job.min_nodes", request.min_nodes, "nodes",
              "to go on with where some are lost; with fewer the job waits for all of them again",
              between(1, limits::kRanks));
  options.add("job.partition", request.partition, "", "of Slurm; auto: that of the site file",
              not_empty());
  options.add("job.account", request.account, "", "to charge; auto: that of the site file",
              not_empty());
  options.add("job.srun", request.srun, "",
              "more options of srun, separated by spaces, after those of the site file");
  options.add("job.sbatch", request.sbatch, "",
              "more options of sbatch, separated by spaces, after those of the site file");
  options.add("job.dependency", request.dependency, "", "as sbatch takes it: afterok:12");
  options.add("job.sweep", request.sweep, "",
              "sweep: what to vary, every value with every other: optim.lr=1e-3,3e-4 run.seed=1,2");
  options.add("job.counts", request.counts, "nodes",
              "scaling: node counts to try, 1,2,4; default: powers of two up to job.nodes");
  constexpr int kLastTask = 1000;  // of an array; Slurm's default MaxArraySize is 1001
  options.add("job.islands", request.islands, "members",
              "islands: a job for each of island-1 to island-8: 1-8; others may follow: 9-10",
              between(1, kLastTask));
  options.paths({"job.log"});
  for (const char* name : {"nodes", "tasks_per_node", "cpus_per_task", "memory", "time", "name",
                           "log", "grace", "sweep", "counts", "islands", "min_nodes", "partition",
                           "account", "srun", "sbatch", "dependency"}) {
    std::string alias = name;
    std::replace(alias.begin(), alias.end(), '_', '-');
    options.alias(alias, fmt::format("job.{}", name));
  }
}

std::int64_t read_mib(std::string_view text, const std::string& key) {
  const std::int64_t mib = read_size(text, kMib).value_or(0) / kMib;
  if (mib >= 1 && mib <= kMostMib) return mib;
  throw ConfigError(
      fmt::format("{} {}: expected an amount of memory, as in 1500M, 64G or 1T", key, shown(text)));
}

std::string shell_word(std::string_view text) {
  // A line of a script stays one line.
  const auto breaks_lines = [](char c) { return static_cast<unsigned char>(c) < ' ' || c == 127; };
  if (std::any_of(text.begin(), text.end(), breaks_lines)) {
    std::string word = "$'";
    for (const char c : text) {
      if (breaks_lines(c)) {
        word += fmt::format("\\{:03o}", static_cast<unsigned>(c));
      } else {
        word += c == '\'' || c == '\\' ? std::string{'\\', c} : std::string(1, c);
      }
    }
    return word + "'";
  }
  if (!text.empty() && std::all_of(text.begin(), text.end(), is_plain) &&
      text.find_first_of("[]") == std::string_view::npos) {
    return std::string(text);
  }
  std::string word = "'";
  for (const char c : text) word += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return word + "'";
}

}  // namespace trireme
