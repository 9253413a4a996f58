// Finds out what a job will run, and checks whether it can.
#include <algorithm>
#include <charconv>
#include <numeric>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/job/job_script.h"
#include "trireme/setup/compute_device.h"
#include "trireme/setup/dry_run_input.h"
#include "trireme/setup/memory_check.h"
#include "trireme/setup/named_files.h"
#include "trireme/setup/nearest_setting.h"
#include "trireme/setup/run_grid.h"
#include "trireme/setup/settled_micro.h"
#include "trireme/tasks/task.h"
#include "trireme/tensor/cuda.h"

#include "job/job_limits.h"
#include "job/job_starts.h"

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
    for (int n = 1; n < request.nodes.most; n *= 2) counts.push_back(n);
    counts.push_back(request.nodes.most);
    return counts;
  }
  for (const std::string& part : split(request.counts, ',')) {
    int count = 0;
    const auto [end, error] = std::from_chars(part.data(), part.data() + part.size(), count);
    if (error != std::errc() || end != part.data() + part.size() || count < 1 ||
        count > request.nodes.most) {
      throw ConfigError(fmt::format("job.counts {}: '{}' is not a number of nodes from 1 to {}",
                                    shown(request.counts), shown(part), request.nodes.most));
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

// A point's configuration, and its changes as flags whose paths are expanded.
struct SweptPoint {
  Config config;
  std::vector<std::string> flags;
};

SweptPoint swept_point(const std::vector<std::string>& flags, const Config& config) {
  SweptPoint point{config, {}};
  Options options("");
  add_config_keys(options, point.config);
  options.for_job();
  options.parse(flags);
  check_config(point.config);
  const std::vector<OptionDescription> keys = options.keys();
  for (const std::string& flag : flags) {
    const std::string name = flag.substr(2, flag.find('=') - 2);
    const auto key = std::ranges::find_if(keys, [&](const OptionDescription& one) {
      return one.name == name || std::ranges::find(one.aliases, name) != one.aliases.end();
    });
    if (key->name == "run.folder") {
      throw ConfigError(
          "job.sweep: run.folder cannot vary: each point has a folder of its own in it, as "
          "run/point-0");
    }
    const bool expanded = key->paths != PathForm::kNone;
    point.flags.push_back(
        fmt::format("--{}={}", key->name,
                    expanded ? options.value_of(key->name) : flag.substr(flag.find('=') + 1)));
  }
  return point;
}

// Each job of the array is a member of the run, and has the configuration besides.
void check_islands(const JobTemplate& job_template, const Config& config,
                   const JobRequest& request) {
  const bool has_members = job_template.uses("ISLANDS"), given = !request.islands.array.empty();
  if (has_members && !given) {
    throw ConfigError(
        fmt::format("template {} needs --islands: the numbers of the run's members, as in 1-8",
                    job_template.name));
  }
  if (!has_members && given) {
    throw ConfigError(
        fmt::format("--islands {} is given, but template {} has one job for a run: use islands",
                    request.islands.array, job_template.name));
  }
  // Members of smaller numbers may be there already.
  const int most = given ? request.islands.most() : 0;
  if (has_members && config.sync.quorum > most) {
    throw ConfigError(fmt::format(
        "sync.quorum is {}, but with --islands {} the run has {} members at most: give less",
        config.sync.quorum, request.islands.array, most));
  }
  if (config.sync.is_member() && (has_members || job_template.uses("RUN_FOLDER"))) {
    throw ConfigError(fmt::format(
        "sync.member is {}, but {}: leave it out", config.sync.member,
        has_members ? fmt::format("template {} names the members itself, island-1 and so on",
                                  job_template.name)
                    : fmt::format("the job of template {} carries its run alone, and islands does "
                                  "not",
                                  job_template.name)));
  }
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
  check_islands(job_template, config, request);
  std::vector<JobPoint> points;
  if (job_template.uses("NODE_COUNTS")) {
    for (const int nodes : node_counts(request)) {
      points.push_back({.config = config, .flags = {}, .nodes = nodes, .grid = {}, .memory = {}});
    }
    return points;
  }
  for (const std::vector<std::string>& flags : sweep_points(request.sweep)) {
    JobPoint point{
        .config = config, .flags = {}, .nodes = request.nodes.most, .grid = {}, .memory = {}};
    if (job_template.uses("ISLANDS")) point.config.sync.member = "island-1";
    if (sweeps) {
      SweptPoint swept = swept_point(flags, config);
      point.config = std::move(swept.config);
      point.flags = std::move(swept.flags);
      check_family_stays(config, point.config);
      point.config.run.folder = fmt::format("{}/point-{}", point.config.run.folder, points.size());
      point.flags.push_back("--run.folder=" + point.config.run.folder);
    }
    points.push_back(std::move(point));
  }
  return points;
}

// Names numbers of nodes that the grid fills, for a grid that does not fill the requested nodes:
// "; 2 or 4 nodes would do".
std::string nodes_that_fit(const Config::Grid& grid, std::int64_t nodes, std::int64_t tasks) {
  const std::int64_t unit = std::int64_t{grid.shape().ranks()} * grid.islands;
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

// What a rank needs of its node's memory, in bytes. Beside a GPU's that is the program with CUDA
// and its libraries, micro-batches, and one slice of a parameter at a time, where files are read
// and written.
double host_bytes(const PeakMemory& memory, bool on_gpus) {
  if (!on_gpus) return memory.total + kProcessBytes;
  constexpr double kGiB = 1073741824.0;
  const double parameters = memory.by_use[static_cast<std::size_t>(MemoryUse::kParameters)];
  return 2.0 * kGiB + std::min(parameters, 4.0 * kGiB);
}

void check_nodes(const JobTemplate& job_template, const JobRequest& request) {
  const NodeRange& nodes = request.nodes;
  if (!job_template.uses("NODES") && nodes.most != 1) {
    throw ConfigError(
        fmt::format("template {} is for one node, but --nodes is {}: use several_nodes",
                    job_template.name, write_value(nodes)));
  }
  if (job_template.uses("NODE_COUNTS") && nodes.least != nodes.most) {
    throw ConfigError(fmt::format(
        "--nodes {}: template {} measures fixed numbers of nodes: --nodes {}, and --counts says "
        "which of them",
        write_value(nodes), job_template.name, nodes.most));
  }
}

// A job for GPUs runs on them, unless it is told to compute on CPUs.
void check_program(const JobTemplate& job_template, const Config& config) {
  DeviceRequest request = device_request(config);
  if (job_template.uses("GRES") && request.device == "auto") {
    if (cuda::build_info().toolkit.empty()) {
      throw ConfigError(fmt::format(
          "template {} asks for GPUs, but this program was built without CUDA: write the job with "
          "one that has it, name its module in the site file (environment.modules = trireme/...), "
          "or compute on CPUs by --run.device cpu",
          job_template.name));
    }
    request.device = "cuda";
  }
  check_backends(request);
}

// Sets the point's nodes to the most of those that the job may get, or to the fewest, whose ranks
// the grid can use; a start that gets others leaves some out. If there are none, leaves them.
void choose_nodes(JobPoint& point, const JobRequest& request, bool most) {
  constexpr int kMostTries = 10000;
  const auto [least, end] = request.nodes;
  for (int i = 0; i <= std::min(end - least, kMostTries); ++i) {
    const int nodes = most ? end - i : least + i;
    const std::int64_t ranks = std::int64_t{nodes} * request.tasks_per_node;
    if (ranks > kMostGridRanks) continue;
    try {
      resolve_run_grid(point.config, ranks_of_island(point.config, static_cast<int>(ranks)));
    } catch (const ConfigError&) {
      continue;
    }
    point.nodes = nodes;
    return;
  }
}

// With the fewest nodes of a range, each rank may hold more; its grid must be one that the flags of
// the job leave open.
void check_fewest(const JobPoint& fewest, const JobPoint& most, const JobRequest& request) {
  if (fewest.grid.extent(kModelAxes) == most.grid.extent(kModelAxes) &&
      fewest.grid.extent(Axis::kTensor) == most.grid.extent(Axis::kTensor)) {
    return;
  }
  throw ConfigError(fmt::format(
      "--nodes {}: {} would be a grid of {}, and {} one of {}: only the data dimension can follow "
      "the nodes, so leave grid.data out",
      write_value(request.nodes), counted(fewest.nodes, "node"), fewest.grid.to_string(),
      counted(most.nodes, "node"), most.grid.to_string()));
}

void check_memory(const JobPoint& point, const models::Model& model, const plan::DryDevice& device,
                  const RanksAhead& ranks) {
  const RunOfRanks run{.config = point.config,
                       .model = model,
                       .grid = point.grid,
                       .ranks_of_node = ranks.ranks_of_node,
                       .device = device};
  const auto remedy = [&](const FitsMemory& fits) { return nearest_setting(run, fits); };
  if (ranks.on_gpus && ranks.gpu_bytes > 0) {
    check_gpu_memory(point.memory, ranks.gpu_bytes >> 20, remedy);
  }
  if (!ranks.on_gpus && ranks.node_mib) {
    check_node_memory(point.memory, ranks.ranks_of_node, *ranks.node_mib, remedy);
  }
}

void check_point(JobPoint& point, const JobTemplate& job_template, const JobRequest& request,
                 const FactsOfData& facts, const RanksAhead& ranks_ahead) {
  Config& config = point.config;
  check_config(config);
  check_named_files(config);
  const std::int64_t ranks = std::int64_t{point.nodes} * request.tasks_per_node;
  if (ranks > kMostGridRanks) throw ConfigError(fmt::format("{} ranks are too many", ranks));
  const models::Model model = models::resolve(config.model, facts(config));
  try {
    point.grid = resolve_run_grid(config, ranks_of_island(config, static_cast<int>(ranks)));
  } catch (const ConfigError& error) {
    throw ConfigError(fmt::format(
        "{} x {} tasks: {}{}", counted(point.nodes, "node"), request.tasks_per_node, error.what(),
        nodes_that_fit(config.grid, point.nodes, request.tasks_per_node)));
  }
  // The start of the job settles it likewise, by the memory that is there.
  if (!config.batch.micro.is_known()) {
    config.batch.micro.settle(settled_micro_ahead(config, model, point.grid, ranks_ahead).samples);
  }
  check_model_fits_grid(config, model, point.grid);
  const plan::DryRunInput input =
      dry_run_input(config, model, point.grid, request.cpus_per_task, ranks_ahead.gpu_bytes);
  point.memory = largest_of(plan::dry_run_largest(input));
  check_time(job_template, request, config);
  check_memory(point, model, input.device, ranks_ahead);
}

}  // namespace

models::DataFacts facts_to_check(const Config& config) {
  return tasks::task_of(config.model).facts_on_this_host(config.data.train);
}

JobPlan plan_job(const JobTemplate& job_template, const Config& config, const JobRequest& request,
                 const ClusterLimits& limits, const FactsOfData& facts) {
  check_nodes(job_template, request);
  check_partition(request, limits.groups);
  std::optional<std::int64_t> node_mib = limits.node_memory;
  const std::optional<std::int64_t> asked =
      request.memory ? std::optional(read_mib(*request.memory, "--job.memory")) : std::nullopt;
  if (asked && node_mib && *asked > *node_mib) {
    throw ConfigError(
        fmt::format("--job.memory {}: a node has {} MiB", *request.memory, *node_mib));
  }
  if (asked) node_mib = asked;
  JobPlan plan{.points = points_of(job_template, config, request)};
  double most = 0.0;
  for (JobPoint& point : plan.points) {
    if (!limits.program_of_module) check_program(job_template, point.config);
    const bool on_gpus = job_template.uses("GRES") && point.config.run.device != "cpu";
    const RanksAhead ranks{.on_gpus = on_gpus,
                           .gpu_bytes = on_gpus ? limits.gpu_memory.value_or(0) << 20 : 0,
                           .node_mib = node_mib,
                           .ranks_of_node = request.tasks_per_node,
                           .threads = request.cpus_per_task};
    const bool is_range = request.nodes.least < request.nodes.most;
    write_out_micro(point.config);
    const MicroSize micro = point.config.batch.micro;
    if (is_range) choose_nodes(point, request, true);
    check_point(point, job_template, request, facts, ranks);
    most = std::max(most, host_bytes(point.memory, on_gpus));
    if (!is_range) continue;
    JobPoint fewest = point;
    fewest.config.batch.micro = micro;
    choose_nodes(fewest, request, false);
    check_point(fewest, job_template, request, facts, ranks);
    check_fewest(fewest, point, request);
    most = std::max(most, host_bytes(fewest.memory, on_gpus));
  }
  plan.of_nodes = check_every_start(job_template, config, request, plan);
  plan.memory_mib = mib_of(2.0 * most * request.tasks_per_node);
  if (node_mib) plan.memory_mib = std::min(plan.memory_mib, *node_mib);
  if (asked) plan.memory_mib = *asked;
  return plan;
}

}  // namespace trireme
