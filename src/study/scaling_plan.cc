// Which points a study has, and what each of them trains.
#include <algorithm>
#include <charconv>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/limits.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/study/scaling_study.h"

namespace trireme::scaling {
namespace {

std::optional<int> count_in(std::string_view text) {
  int value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size() || value < 1 || value > 1 << 20) {
    return {};
  }
  return value;
}

constexpr std::size_t kMostPoints = 10'000;

int ranks_of(const StudyPlan& plan, int nodes) {
  const std::int64_t ranks = std::int64_t{nodes} * plan.ranks_per_node;
  if (static_cast<double>(ranks) > limits::kRanks) {
    throw ConfigError(fmt::format("{} nodes of {} ranks: at most {} ranks can be", nodes,
                                  plan.ranks_per_node, limits::kRanks));
  }
  return static_cast<int>(ranks);
}

// What batch.micro is, or can be where it is not settled yet.
int least_micro(const StudyPlan& plan) {
  return micro_of_keys(plan.config).value_or(1);
}

// Returns the sequences per step of a point. In weak scaling they grow in proportion to the nodes.
int batch_of(const StudyPlan& plan, const Point& point) {
  const int fewest = plan.nodes.front();
  const std::int64_t base = plan.config.batch.global;
  const std::int64_t batch = point.mode == Mode::kStrong ? base : base * point.nodes / fewest;
  const int micro = least_micro(plan);
  if (point.mode == Mode::kWeak && (base * point.nodes % fewest != 0 || batch % micro != 0)) {
    throw ConfigError(
        fmt::format("weak scaling to {} nodes: batch.global {} of {} nodes does not grow to whole "
                    "micro-batches "
                    "of {}: give a multiple of {}",
                    point.nodes, base, fewest, micro, std::int64_t{fewest} * micro));
  }
  if (static_cast<double>(batch) > limits::kSequences) {
    throw ConfigError(
        fmt::format("weak scaling to {} nodes: a batch.global of {}: at most {} can be",
                    point.nodes, batch, limits::kSequences));
  }
  return static_cast<int>(batch);
}

void check_fits(const StudyPlan& plan, const Point& point) {
  const int model_ranks = point.grid.extent(kModelAxes);
  if (point.ranks % model_ranks != 0) {
    throw ConfigError(fmt::format(
        "--grids {} needs a multiple of {} ranks, but {} nodes have {}: give other --nodes or "
        "--ranks-per-node",
        point.grid.extents_text("x", kModelAxes), model_ranks, point.nodes, point.ranks));
  }
  const int micro_batches = batch_of(plan, point) / least_micro(plan);
  const int replicas = point.grid.extent(kDataAxes);
  if (micro_batches < replicas) {
    throw ConfigError(fmt::format(
        "{} scaling to {} nodes: {} micro-batches a step (batch.global / batch.micro) are fewer "
        "than {} data replicas: give a greater batch.global",
        name_of(point.mode), point.nodes, micro_batches, replicas));
  }
}

// Whether the fewest nodes have fewer ranks than the grid has in one replica, and `nodes` too. Then
// the series begins with one of data parallelism alone, and has no point at more such nodes.
bool has_too_few_ranks(const StudyPlan& plan, const GridShape& grid, int nodes) {
  return ranks_of(plan, nodes) < grid.extent(kModelAxes) && nodes < plan.nodes.back();
}

}  // namespace

std::vector<int> read_counts(const std::string& text) {
  std::vector<int> counts;
  for (const std::string& part : split_list(text)) {
    const auto count = count_in(part);
    if (!count)
      throw ConfigError(fmt::format("--nodes {}: expected counts, as in 1,2,4", shown(text)));
    counts.push_back(*count);
  }
  std::sort(counts.begin(), counts.end());
  counts.erase(std::unique(counts.begin(), counts.end()), counts.end());
  return counts;
}

std::vector<Mode> read_modes(const std::string& text) {
  std::vector<Mode> modes;
  for (const std::string& part : split_list(text)) {
    if (part != "strong" && part != "weak") {
      throw ConfigError(
          fmt::format("--mode {}: expected strong, weak or strong,weak", shown(text)));
    }
    const Mode mode = part == "strong" ? Mode::kStrong : Mode::kWeak;
    if (std::find(modes.begin(), modes.end(), mode) == modes.end()) modes.push_back(mode);
  }
  return modes;
}

std::vector<GridShape> read_grids(const std::string& text) {
  std::vector<GridShape> grids;
  for (const std::string& part : split_list(text)) {
    const std::optional<GridShape> grid = read_extents(part, kModelAxes);
    if (!grid) {
      throw ConfigError(fmt::format(
          "--grids {}: expected PIPELINExTENSOR, as in 1x1,1x2,2x1; data is what they leave",
          shown(text)));
    }
    if (std::find(grids.begin(), grids.end(), *grid) == grids.end()) grids.push_back(*grid);
  }
  return grids;
}

std::optional<Point> twin_of(const StudyPlan& plan, const Point& point) {
  if (point.nodes != plan.nodes.front()) return {};
  Point twin = point;
  twin.mode = point.mode == Mode::kStrong ? Mode::kWeak : Mode::kStrong;
  return twin;
}

std::vector<PointResult> results_by_mode(const StudyPlan& plan,
                                         std::span<const PointResult> results) {
  std::vector<PointResult> all;
  for (const Mode mode : plan.modes) {
    for (const PointResult& result : results) {
      if (result.point.mode != mode && !twin_of(plan, result.point)) continue;
      all.push_back(result);
      all.back().point.mode = mode;
    }
  }
  return all;
}

std::vector<Point> points_of(const StudyPlan& plan) {
  std::vector<Point> points;
  for (int repeat = 1; repeat <= plan.repeats; ++repeat) {
    for (const Mode mode : plan.modes) {
      for (const GridShape& replica : plan.grids) {
        for (const int nodes : plan.nodes) {
          const int ranks = ranks_of(plan, nodes);
          const bool too_few = has_too_few_ranks(plan, replica, nodes);
          if (too_few && nodes != plan.nodes.front()) continue;
          GridShape grid = too_few ? GridShape{} : replica;
          grid.set_extent(kDataAxes, std::max(1, ranks / grid.extent(kModelAxes)));
          if (points.size() == kMostPoints) {
            throw ConfigError(fmt::format("the study has more than {} points", kMostPoints));
          }
          const Point point{mode, nodes, ranks, grid, repeat};
          check_fits(plan, point);
          const auto planned = [&](const Point& other) {
            return std::find(points.begin(), points.end(), other) != points.end();
          };
          const std::optional<Point> twin = twin_of(plan, point);
          if (!planned(point) && !(twin && planned(*twin))) points.push_back(point);
        }
      }
    }
  }
  return points;
}

Config config_of(const StudyPlan& plan, const Point& point, const std::string& run_folder) {
  Config config = plan.config;
  if (config.checkpoint.every && config.checkpoint.every->epochs()) {
    throw ConfigError(
        fmt::format("checkpoint.every is {}, but a study counts checkpoints by steps: give steps",
                    write_value(*config.checkpoint.every)));
  }
  config.run.folder = run_folder;
  config.run.steps = plan.steps;
  config.run.resume = "never";
  config.batch.global = batch_of(plan, point);
  config.grid.ask_for(point.grid);
  config.data.validation.clear();
  config.eval.every = 0;
  config.log.every = std::max(1, plan.steps);
  config.checkpoint.every = 0;
  config.checkpoint.keep = 1;
  config.schedule = {};
  config.schedule.name = "constant";
  config.schedule.warmup = 0;
  check_config(config);
  return config;
}

}  // namespace trireme::scaling
