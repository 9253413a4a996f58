// The checker: first it checks each stage's list by itself, then it simulates all stages together.
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trireme/parallel/schedule.h"

#include "parallel/schedule_simulation.h"
#include "parallel/stage_walk.h"

namespace trireme::parallel {
namespace {

std::optional<std::string> check_sizes(const PipelineSchedule& schedule,
                                       const ScheduleCosts& costs) {
  const PipelineLayout& layout = schedule.layout;
  if (layout.stages < 1 || schedule.micro_batches < 1 || layout.chunks < 1) {
    return fmt::format("{} stages, {} micro-batches and {} chunks: each must be at least 1",
                       layout.stages, schedule.micro_batches, layout.chunks);
  }
  if (schedule.steps.size() != static_cast<std::size_t>(layout.stages)) {
    return fmt::format("there are lists of steps for {} stages of {}", schedule.steps.size(),
                       layout.stages);
  }
  const auto parts = static_cast<std::size_t>(layout.parts());
  if (!costs.parts.empty() && costs.parts.size() != parts) {
    return fmt::format("there are costs for {} parts of {}", costs.parts.size(), parts);
  }
  return {};
}

}  // namespace

ScheduleReport check_schedule(const PipelineSchedule& schedule, const ScheduleCosts& costs) {
  ScheduleReport report;
  const auto refuse = [&](const std::string& problem) {
    report.problem = problem;
    return report;
  };
  if (const auto problem = check_sizes(schedule, costs)) return refuse(*problem);
  std::vector<int> peak_live;
  for (int stage = 0; stage < schedule.layout.stages; ++stage) {
    StageWalk walk(schedule, stage);
    if (const auto problem = walk.check()) return refuse(*problem);
    peak_live.push_back(walk.peak_live());
  }
  ScheduleSimulation simulation(schedule, costs);
  if (const auto problem = simulation.run()) return refuse(*problem);
  report.ok = true;
  report.peak_live = std::move(peak_live);
  report.makespan = simulation.makespan();
  const double capacity = report.makespan * schedule.layout.stages;
  if (capacity > 0) report.bubble_fraction = 1 - simulation.busy() / capacity;
  return report;
}

}  // namespace trireme::parallel
