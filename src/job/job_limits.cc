#include "job/job_limits.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Returns {1, 30} for "1:30", or nothing if a part is not a number.
std::optional<std::vector<std::int64_t>> numbers_between_colons(std::string_view text) {
  std::vector<std::int64_t> numbers;
  while (true) {
    const std::string_view part = text.substr(0, text.find(':'));
    std::int64_t number = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), number);
    constexpr std::int64_t kMost = 1'000'000'000;
    if (error != std::errc() || end != part.data() + part.size() || number < 0 || number > kMost) {
      return {};
    }
    numbers.push_back(number);
    if (part.size() == text.size()) return numbers;
    text.remove_prefix(part.size() + 1);
  }
}

// Returns a time limit in seconds, or nothing if the text is not a time.
std::optional<std::int64_t> seconds_of(const std::string& text) {
  const std::size_t dash = text.find('-');
  const bool has_days = dash != std::string::npos;
  const auto days = numbers_between_colons(has_days ? text.substr(0, dash) : "0");
  auto rest = numbers_between_colons(has_days ? text.substr(dash + 1) : text);
  if (!days || days->size() != 1 || !rest || rest->size() > 3) return {};
  // After days the first number is hours. Without days, one or two numbers begin with minutes.
  if (!has_days && rest->size() < 3) rest->insert(rest->begin(), 0);
  rest->resize(3);
  return (((*days)[0] * 24 + (*rest)[0]) * 60 + (*rest)[1]) * 60 + (*rest)[2];
}

void remark_data(const char* key, const std::vector<WeightedPath>& paths,
                 std::vector<std::string>& remarks) {
  for (const WeightedPath& path : paths) {
    if (look_ahead(path.path, ExitStatus::kData).is_there()) continue;
    const fs::path folder = fs::absolute(path.path).parent_path();
    if (!look_ahead(folder.string(), ExitStatus::kData).is_folder()) {
      remarks.push_back(
          fmt::format("{} {}: there is no folder {} on this host; the nodes must see it", key,
                      path.path, folder.string()));
      continue;
    }
    throw DataError(fmt::format("{} {}: there is no such file in {}; `trireme prepare` makes it",
                                key, path.path, folder.string()));
  }
}

// If the user gave grid.data, the remaining ranks go to a dimension of the model. Remarks on that.
void remark_grid(const JobPoint& point, std::vector<std::string>& remarks) {
  const GridRequest& asked = point.config.grid;
  const GridShape& grid = point.grid;
  const GridDimension* taker = asked.takes_rest();
  if (!asked[kDataAxes] || taker == nullptr || grid.extent(taker->axes) == 1) return;
  remarks.push_back(
      fmt::format("grid.data is {}, so the {} ranks are used as a grid of {}: "
                  "grid.{} became {}; without grid.data there would be {} replicas",
                  *asked[kDataAxes], grid.ranks(), grid.to_string(), taker->name,
                  grid.extent(taker->axes), grid.ranks() / asked.shape().extent(kModelAxes)));
}

}  // namespace

std::optional<std::int64_t> read_time_limit(const std::string& text, const std::string& key) {
  std::string lower = text;
  std::transform(lower.begin(), lower.end(), lower.begin(),
                 [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c; });
  if (lower == "infinite" || lower == "unlimited") return {};
  const std::optional<std::int64_t> seconds = seconds_of(text);
  if (!seconds) {
    throw ConfigError(fmt::format(
        "{} {}: expected minutes, minutes:seconds, hours:minutes:seconds, days-hours or "
        "days-hours:minutes, as in 90 or 1-12:00",
        key, text));
  }
  return *seconds == 0 ? std::nullopt : seconds;
}

void check_partition(const JobRequest& request, const std::vector<NodeGroup>& groups) {
  struct Partition {
    std::int64_t fitting = 0, nodes = 0;  // nodes with enough CPUs, and all nodes
    int most_cpus = 0;
  };
  if (groups.empty()) return;
  const std::int64_t cpus = std::int64_t{request.tasks_per_node} * request.cpus_per_task;
  std::map<std::string, Partition> partitions;
  for (const NodeGroup& group : groups) {
    Partition& partition = partitions[group.partition];
    partition.nodes += group.nodes;
    partition.most_cpus = std::max(partition.most_cpus, group.cpus);
    if (group.cpus >= cpus) partition.fitting += group.nodes;
  }
  const auto& [name, best] =
      *std::max_element(partitions.begin(), partitions.end(), [](const auto& a, const auto& b) {
        return std::pair(a.second.fitting, a.second.most_cpus) <
               std::pair(b.second.fitting, b.second.most_cpus);
      });
  if (best.fitting >= request.nodes.least) return;
  if (best.fitting == 0) {
    throw ConfigError(fmt::format(
        "{} of {} need {} on a node, but no node of partition {} has more than {}: fewer "
        "--tasks-per-node or --cpus-per-task",
        counted(request.tasks_per_node, "task"), counted(request.cpus_per_task, "core"),
        counted(cpus, "CPU"), name, best.most_cpus));
  }
  throw ConfigError(fmt::format("--nodes {}: partition {} has {}{}", write_value(request.nodes),
                                name, counted(best.fitting, "node"),
                                best.fitting == best.nodes
                                    ? std::string()
                                    : fmt::format(" of {} or more", counted(cpus, "CPU"))));
}

void check_time(const JobTemplate& job_template, const JobRequest& request, const Config& config) {
  const std::optional<std::int64_t> limit = read_time_limit(request.time, "--time");
  constexpr int kMostGrace = 65535;  // the limit of sbatch --signal
  const bool signalled = job_template.uses("GRACE");
  if (signalled && request.grace > kMostGrace) {
    throw ConfigError(
        fmt::format("--grace {}: Slurm takes at most {} seconds", request.grace, kMostGrace));
  }
  if (!limit) return;
  if (signalled && request.grace >= *limit) {
    throw ConfigError(fmt::format(
        "--grace {}: the job has only {} seconds (--time {}), and would be stopped as it starts: "
        "more --time, or less --grace",
        request.grace, *limit, request.time));
  }
  if (config.checkpoint.margin >= static_cast<double>(*limit)) {
    throw ConfigError(fmt::format(
        "checkpoint.margin {:g}: the job has only {} seconds (--time {}), and would make one step "
        "each time it starts: more --time, or less checkpoint.margin",
        config.checkpoint.margin, *limit, request.time));
  }
}

std::vector<std::string> job_remarks(const JobPlan& plan) {
  std::vector<std::string> remarks;
  if (!plan.of_nodes.empty()) remarks.push_back(plan.of_nodes);
  for (const JobPoint& point : plan.points) {
    remark_data("data.train", point.config.data.train, remarks);
    remark_data("data.validation", point.config.data.validation, remarks);
    remark_grid(point, remarks);
  }
  // The points of a sweep often have the same remarks.
  std::vector<std::string> distinct;
  for (std::string& remark : remarks) {
    if (std::find(distinct.begin(), distinct.end(), remark) == distinct.end()) {
      distinct.push_back(std::move(remark));
    }
  }
  return distinct;
}

}  // namespace trireme
