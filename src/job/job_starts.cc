#include "job/job_starts.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/text.h"
#include "trireme/setup/run_grid.h"

namespace trireme {
namespace {

// A start on so many nodes.
struct Start {
  int nodes = 0;
  int used = 0;         // the others are left out
  std::string problem;  // it cannot run; empty: it can
};

// "3, 5-8"
std::string numbers_text(const std::vector<int>& numbers) {
  std::vector<std::string> parts;
  for (std::size_t i = 0, last = 0; i < numbers.size(); i = last + 1) {
    last = i;
    while (last + 1 < numbers.size() && numbers[last + 1] == numbers[last] + 1) ++last;
    parts.push_back(write_value(NodeRange(numbers[i], numbers[last])));
  }
  return fmt::format("{}", fmt::join(parts, ", "));
}

// Returns the longest part of the range on which every start runs.
std::string part_that_runs(const std::vector<Start>& starts) {
  std::size_t best = 0, best_size = 0, begin = 0;
  for (std::size_t i = 0; i < starts.size(); ++i) {
    if (!starts[i].problem.empty()) {
      begin = i + 1;
    } else if (i + 1 - begin > best_size) {
      best = begin;
      best_size = i + 1 - begin;
    }
  }
  if (best_size == 0) return "";
  const NodeRange part(starts[best].nodes, starts[best + best_size - 1].nodes);
  return fmt::format("; --nodes {} would do", write_value(part));
}

std::vector<Start> starts_of(const JobPoint& point, const JobTemplate& job_template,
                             const Config& config, const JobRequest& request, const JobPlan& plan) {
  constexpr int kMostTries = 10000;
  const int replica = model_ranks(plan), divided = micro_batches_to_divide(plan);
  const int fewest = fewest_nodes(request, config, plan), tasks = request.tasks_per_node;
  const bool fixes = !job_template.uses("POINTS");
  const Config run = fixes ? with_fixed_grid(point.config, point.grid) : point.config;
  const auto fit = [&](int nodes) {
    const int ranks = nodes * tasks;
    return ranks % replica == 0 && (divided == 0 || divided % (ranks / replica) == 0);
  };
  std::vector<Start> starts;
  const int most = std::min(request.nodes.most, request.nodes.least + kMostTries);
  for (int nodes = request.nodes.least; nodes <= most; ++nodes) {
    Start start{.nodes = nodes, .used = nodes, .problem = {}};
    while (start.used > 0 && !fit(start.used)) --start.used;
    if (start.used == 0) {
      start.problem = fmt::format("no replica of {} ranks has room", replica);
    } else if (start.used < fewest) {
      start.problem = fmt::format("{} can be used, fewer than --min-nodes {}", start.used, fewest);
    } else {
      try {
        resolve_run_grid(run, ranks_of_island(run, start.used * tasks));
      } catch (const ConfigError& error) {
        start.problem = error.what();
      }
    }
    starts.push_back(std::move(start));
  }
  return starts;
}

}  // namespace

int model_ranks(const JobPlan& plan) {
  int ranks = 1;
  for (const JobPoint& point : plan.points) {
    ranks = std::lcm(ranks, point.grid.extent(kModelAxes) * point.config.grid.islands);
  }
  return ranks;
}

int micro_batches_to_divide(const JobPlan& plan) {
  int divided = 0;
  for (const JobPoint& point : plan.points) {
    const Config& config = point.config;
    if (!models::joins_replicas(config.model)) continue;
    divided = std::gcd(divided, static_cast<int>(config.batch.global / config.batch.micro));
  }
  return divided;
}

// A data dimension that the user has given does not shrink.
int fewest_nodes(const JobRequest& request, const Config& config, const JobPlan& plan) {
  const bool fixed = config.grid[kDataAxes] ||
                     std::any_of(plan.points.begin(), plan.points.end(), [](const JobPoint& point) {
                       return point.config.grid[kDataAxes];
                     });
  return fixed ? request.nodes.least : std::min(request.min_nodes, request.nodes.least);
}

Config with_fixed_grid(const Config& config, const GridShape& grid) {
  Config fixed = config;
  fixed.grid.ask_for(grid, config.run.same_bits ? Axes(Axis::kTensor) : kModelAxes);
  return fixed;
}

std::string check_every_start(const JobTemplate& job_template, const Config& config,
                              const JobRequest& request, const JobPlan& plan) {
  if (request.nodes.least == request.nodes.most || job_template.uses("NODE_COUNTS")) return "";
  std::vector<int> partly;
  for (const JobPoint& point : plan.points) {
    const std::vector<Start> starts = starts_of(point, job_template, config, request, plan);
    std::vector<int> failing;
    const Start* first = nullptr;
    for (const Start& start : starts) {
      if (!start.problem.empty()) failing.push_back(start.nodes);
      if (!start.problem.empty() && first == nullptr) first = &start;
      if (start.problem.empty() && start.used < start.nodes) partly.push_back(start.nodes);
    }
    if (first != nullptr) {
      throw ConfigError(fmt::format(
          "--nodes {}: no run could start on {} of them: {} x {} tasks: {}{}",
          write_value(request.nodes), numbers_text(failing), counted(first->nodes, "node"),
          request.tasks_per_node, first->problem, part_that_runs(starts)));
    }
  }
  if (partly.empty()) return "";
  std::ranges::sort(partly);
  partly.erase(std::ranges::unique(partly).begin(), partly.end());
  return fmt::format("--nodes {}: a start that gets {} of them leaves some out",
                     write_value(request.nodes), numbers_text(partly));
}

}  // namespace trireme
