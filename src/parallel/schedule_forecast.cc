#include "trireme/parallel/schedule_forecast.h"

#include <algorithm>

#include "trireme/base/error.h"
#include "trireme/parallel/partition.h"

namespace trireme::parallel {
namespace {

// How many computations of each kind are run of a longer step, and how many groups at least. A
// group is as many micro-batches as there are stages. Each further one is taken to last as long as
// one of the second half of these does on average.
constexpr int kComputations = 1 << 12, kGroups = 4;

double makespan(const std::string& name, const PipelineLayout& layout, int micro_batches,
                int first_backward, const ScheduleCosts& costs) {
  const auto report =
      check_schedule(make_pipeline_schedule(name, layout, micro_batches, first_backward), costs);
  TRIREME_CHECK(report.ok, report.problem);
  return report.makespan;
}

}  // namespace

ScheduleForecast forecast_schedule(const std::string& name, const PipelineLayout& layout,
                                   const nn::ModelPlan& model, const ForecastStep& step) {
  const std::vector<int> bounds = parts_of_model(model, layout, step.cut, step.trained);
  const std::vector<int> ends =
      ends_of_recomputed(bounds, layout, step.recomputed_blocks, step.trained.first_block());
  const ScheduleCosts costs{
      .parts = costs_of_parts(model.blocks, bounds, step.recomputed, step.trained, ends),
      .in_order = step.in_order};
  const int first = part_with(bounds, step.trained.first_block());
  const int micro_batches = step.micro_batches;
  double busy = 0;  // of all stages
  for (const StepCosts& part : costs.parts) {
    busy += micro_batches * (part.forward + part.backward_input + part.backward_weight);
  }
  // `run` is how many micro-batches are run, `more` how many more groups there are.
  const int stages = layout.stages;
  const int groups = std::max(kGroups, kComputations / (layout.parts() * stages));
  const int more = std::max(0, micro_batches / stages - groups);
  const int run = micro_batches - more * stages;
  double span = makespan(name, layout, run, first, costs);
  if (more > 0) {
    const int half = groups / 2;
    span += more * (span - makespan(name, layout, run - half * stages, first, costs)) / half;
  }

  ScheduleForecast forecast{name, layout};
  if (span > 0) forecast.idle = std::max(0.0, 1 - busy / (span * stages));
  const std::vector<int> live = live_micro_batches(name, layout, micro_batches);
  for (int stage = 0; stage < stages; ++stage) {
    if (layout.part(stage, layout.chunks - 1) < first) continue;  // it keeps nothing
    const double held = live[static_cast<std::size_t>(stage)];
    forecast.live = std::max(forecast.live, held / layout.chunks);
  }
  return forecast;
}

std::vector<ScheduleForecast> forecast_schedules(int stages, std::optional<int> chunks,
                                                 const nn::ModelPlan& model,
                                                 const ForecastStep& step) {
  std::vector<ScheduleForecast> all;
  for (const std::string& name : schedule_names()) {
    const auto layout =
        schedule_layout(name, stages, name == "interleaved" ? chunks : std::optional<int>());
    const bool fits = model.blocks.size() / static_cast<std::size_t>(layout.chunks) >=
                      static_cast<std::size_t>(stages);
    if (!fits || !takes_micro_batches(name, layout, step.micro_batches)) continue;
    all.push_back(forecast_schedule(name, layout, model, step));
  }
  return all;
}

}  // namespace trireme::parallel
