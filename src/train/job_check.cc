// Finds out what a job will run, and checks whether it can.
#include <algorithm>
#include <charconv>
#include <numeric>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/tasks/task.h"
#include "trireme/train/compute_device.h"
#include "trireme/train/dry_run_input.h"
#include "trireme/train/job_script.h"
#include "trireme/train/memory_check.h"
#include "trireme/train/nearest_setting.h"
#include "trireme/train/run_grid.h"

#include "train/job_limits.h"

namespace trireme {
namespace {

constexpr std::size_t kMostPoints = 1000;  // Slurm's default MaxArraySize is 1001

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(separator), text.size());
    if (end > 0) parts.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return parts;
}

// Combines every value of one key with every value of the others. The first key varies slowest.
std::vector<std::vector<std::string>> sweep_points(const std::string& sweep) {
  std::vector<std::vector<std::string>> points{{}};
  for (const std::string& part : split(sweep, ' ')) {
    const std::size_t equals = part.find('=');
    const std::vector<std::string> values =
        equals == std::string::npos ? std::vector<std::string>()
                                    : split(std::string_view(part).substr(equals + 1), ',');
    if (values.empty() || equals == 0) {
      throw ConfigError(fmt::format(
          "job.sweep '{}': expected key=value,value, as in optim.lr=1e-3,3e-4", shown(part)));
    }
    const std::string key = part.substr(0, equals);
    std::vector<std::vector<std::string>> longer;
    for (const auto& point : points) {
      for (const std::string& value : values) {
        longer.push_back(point);
        longer.back().push_back(fmt::format("--{}={}", key, value));
      }
    }
    points = std::move(longer);
    if (points.size() > kMostPoints) {
      throw ConfigError(fmt::format("job.sweep has more than {} points", kMostPoints));
    }
  }
  return points;
}

std::vector<int> node_counts(const JobRequest& request) {
  std::vector<int> counts;
  if (request.counts.empty()) {
    for (int n = 1; n < request.nodes; n *= 2) counts.push_back(n);
    counts.push_back(request.nodes);
    return counts;
  }
  for (const std::string& part : split(request.counts, ',')) {
    int count = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), count);
    if (error != std::errc() || end != part.data() + part.size() || count < 1 ||
        count > request.nodes) {
      throw ConfigError(fmt::format("job.counts {}: '{}' is not a number of nodes from 1 to {}",
                                    shown(request.counts), shown(part), request.nodes));
    }
    counts.push_back(count);
  }
  return counts;
}

// The run of a point gets the job's configuration first, whose keys model.* are of one family.
void check_family_stays(const Config& config, const Config& point) {
  const std::string &before = config.model.family, &now = point.model.family;
  if (now == before) return;
  throw ConfigError(
      fmt::format("job.sweep: model.family cannot vary, since the other keys model.* follow from "
                  "it: make a job "
                  "with --model.family {} and one with --model.family {}",
                  before, now));
}

// Returns what each run changes. The changes are not checked yet.
std::vector<JobPoint> points_of(const JobTemplate& job_template, const Config& config,
                                const JobRequest& request) {
  const bool sweeps = job_template.uses("POINTS");
  if (sweeps && request.sweep.empty()) {
    throw ConfigError(
        fmt::format("template {} needs --sweep KEY=VALUE,VALUE: what to vary", job_template.name));
  }
  if (!sweeps && !request.sweep.empty()) {
    throw ConfigError(
        fmt::format("--sweep is given, but template {} is one run: use sweep", job_template.name));
  }
  std::vector<JobPoint> points;
  if (job_template.uses("NODE_COUNTS")) {
    for (const int nodes : node_counts(request)) {
      points.push_back({.config = config, .flags = {}, .nodes = nodes, .grid = {}, .memory = {}});
    }
    return points;
  }
  for (std::vector<std::string>& flags : sweep_points(request.sweep)) {
    JobPoint point{.config = config, .flags = {}, .nodes = request.nodes, .grid = {}, .memory = {}};
    if (sweeps) {
      point.config = parse_config(flags, config).config;
      check_family_stays(config, point.config);
      point.config.run.folder = fmt::format("{}/point-{}", point.config.run.folder, points.size());
      flags.push_back("--run.folder=" + point.config.run.folder);
    }
    point.flags = std::move(flags);
    points.push_back(std::move(point));
  }
  return points;
}

// Names numbers of nodes that the grid fills, for a grid that does not fill the requested nodes:
// "; 2 or 4 nodes would do".
std::string nodes_that_fit(const Config::Grid& grid, std::int64_t nodes, std::int64_t tasks) {
  const std::int64_t unit = grid.shape().ranks();
  const std::int64_t fewest = unit / std::gcd(unit, tasks);
  if (grid.takes_rest() == nullptr) {
    if (nodes * tasks == unit || unit % tasks != 0) return "";
    return fmt::format("; {} would do", counted(fewest, "node"));
  }
  if (nodes % fewest == 0) return "";
  const std::int64_t below = nodes / fewest * fewest;
  return below == 0 ? fmt::format("; {} nodes would do", fewest)
                    : fmt::format("; {} or {} nodes would do", below, below + fewest);
}

// The memory of what the ranks compute on, in MiB; what is not known is not checked.
struct MemoryOfRanks {
  bool on_gpus = false;
  std::optional<std::int64_t> gpu, node;
};

void check_memory(const JobPoint& point, const models::Model& model, const JobRequest& request,
                  const plan::DryDevice& device, const MemoryOfRanks& memory) {
  const RunOfRanks run{.config = point.config,
                       .model = model,
                       .grid = point.grid,
                       .ranks_of_node = request.tasks_per_node,
                       .device = device};
  const auto remedy = [&](const FitsMemory& fits) { return nearest_setting(run, fits); };
  if (memory.on_gpus && memory.gpu) check_gpu_memory(point.memory, *memory.gpu, remedy);
  if (!memory.on_gpus && memory.node) {
    check_node_memory(point.memory, request.tasks_per_node, *memory.node, remedy);
  }
}

void check_point(JobPoint& point, const JobTemplate& job_template, const JobRequest& request,
                 const FactsOfData& facts, const MemoryOfRanks& memory) {
  const Config& config = point.config;
  check_config(config);
  check_backends(device_request(config));
  const std::int64_t ranks = std::int64_t{point.nodes} * request.tasks_per_node;
  if (ranks > kMostGridRanks) throw ConfigError(fmt::format("{} ranks are too many", ranks));
  const models::Model model = models::resolve(config.model, facts(config));
  try {
    point.grid = resolve_run_grid(config, static_cast<int>(ranks));
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format(
        "{} x {} tasks: {}{}", counted(point.nodes, "node"), request.tasks_per_node, error.what(),
        nodes_that_fit(config.grid, point.nodes, request.tasks_per_node)));
  }
  check_model_fits_grid(config, model, point.grid);
  plan::DryRunInput input = dry_run_input(config, model, point.grid, request.cpus_per_task);
  input.device.gpu_memory = memory.on_gpus ? memory.gpu.value_or(0) << 20 : 0;
  point.memory = largest_of(plan::dry_run_largest(input));
  check_time(job_template, request, config);
  check_memory(point, model, request, input.device, memory);
}

}  // namespace

models::DataFacts facts_to_check(const Config& config) {
  return tasks::task_of(config.model).facts_on_this_host(config.data.train);
}

JobPlan plan_job(const JobTemplate& job_template, const Config& config, const JobRequest& request,
                 const ClusterLimits& limits, const FactsOfData& facts) {
  if (!job_template.uses("NODES") && request.nodes != 1) {
    throw ConfigError(
        fmt::format("template {} is for one node, but --nodes is {}: use several_nodes",
                    job_template.name, request.nodes));
  }
  check_partition(request, limits.groups);
  std::optional<std::int64_t> node_mib = limits.node_memory;
  const std::optional<std::int64_t> asked =
      request.memory ? std::optional(read_mib(*request.memory, "--job.memory")) : std::nullopt;
  if (asked && node_mib && *asked > *node_mib) {
    throw ConfigError(
        fmt::format("--job.memory {}: a node has {} MiB", *request.memory, *node_mib));
  }
  if (asked) node_mib = asked;
  JobPlan plan{.points = points_of(job_template, config, request), .memory_mib = 0};
  double most = 0.0;
  for (JobPoint& point : plan.points) {
    const bool on_gpus = job_template.uses("GRES") && point.config.run.device != "cpu";
    check_point(point, job_template, request, facts,
                {.on_gpus = on_gpus, .gpu = limits.gpu_memory, .node = node_mib});
    most = std::max(most, point.memory.total);
  }
  plan.memory_mib = mib_of(2.0 * (most + kProcessBytes) * request.tasks_per_node);
  if (node_mib) plan.memory_mib = std::min(plan.memory_mib, *node_mib);
  if (asked) plan.memory_mib = *asked;
  return plan;
}

}  // namespace trireme
