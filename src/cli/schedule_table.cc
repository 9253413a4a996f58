#include "cli/schedule_table.h"

#include <vector>

#include <fmt/format.h>

#include "trireme/base/log.h"
#include "trireme/parallel/schedule_forecast.h"

namespace trireme::cli {
namespace {

std::vector<parallel::ScheduleForecast> forecasts(const Config& config,
                                                  const plan::DryRunInput& input) {
  const int stages = input.grid[Axis::kPipeline];
  if (stages == 1) return {};
  const auto chunks = config.grid.schedule == "interleaved" ? config.grid.chunks : std::nullopt;
  return parallel::forecast_schedules(stages, chunks, input.model,
                                      {.micro_batches = input.step.work.most(),
                                       .recomputed = input.step.runs.recomputed(),
                                       .recomputed_blocks = input.step.runs.recomputed_blocks,
                                       .in_order = input.device.on_gpus() && input.device.nccl,
                                       .trained = input.step.stage.trained});
}

}  // namespace

void print_schedules(const Config& config, const plan::DryRunInput& input) {
  const auto all = forecasts(config, input);
  if (all.empty()) return;
  print_line(
      fmt::format("pipeline schedules, {} stages and {} micro-batches: share of time in which "
                  "stages are idle, by FLOPs; micro-batches that a stage holds at most",
                  input.grid[Axis::kPipeline], input.step.work.most()));
  print_line(fmt::format("{:<12} {:>6} {:>7} {:>7}", "schedule", "chunks", "idle %", "held"));
  for (const parallel::ScheduleForecast& forecast : all) {
    print_line(fmt::format("{:<12} {:>6} {:>7.1f} {:>7.1f}{}", forecast.name,
                           forecast.layout.chunks, 100 * forecast.idle, forecast.live,
                           forecast.name == config.grid.schedule ? "  (this run's)" : ""));
  }
}

Json json_of_schedules(const Config& config, const plan::DryRunInput& input) {
  Json rows = Json::array();
  for (const parallel::ScheduleForecast& forecast : forecasts(config, input)) {
    rows.push_back(Json::object({{"name", forecast.name},
                                 {"chunks", forecast.layout.chunks},
                                 {"idle", forecast.idle},
                                 {"held", forecast.live}}));
  }
  return rows;
}

}  // namespace trireme::cli
