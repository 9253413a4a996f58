#include "train/cut_stages.h"

#include <algorithm>
#include <limits>
#include <span>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/shares.h"
#include "trireme/ops/measured_speed.h"
#include "trireme/parallel/partition.h"
#include "trireme/setup/step_setup.h"

namespace trireme {
namespace {

constexpr double kAsFast = 0.9;

// Empty where there are none.
std::vector<int> cut_in(const Checkpoint& checkpoint) {
  try {
    const Config before = config_from_ini(checkpoint.info().config, checkpoint.path());
    return before.grid.cut.is_auto() ? before.grid.cut.blocks() : std::vector<int>();
  } catch (const ConfigError&) {  // of another version, which knew other keys
    return {};
  }
}

bool is_open(const Config& config) {
  return config.grid.cut.is_auto() && config.grid.cut.blocks().empty();
}

}  // namespace

std::string take_over_cut(const std::optional<Checkpoint>& checkpoint, const models::Model& model,
                          const GridShape& grid, Config& config) {
  StageCut& cut = config.grid.cut;
  if (!cut.is_auto()) return "";
  cut = StageCut::automatic(checkpoint ? cut_in(*checkpoint) : std::vector<int>());
  // Where they are of other stages, the step does not take them.
  if (step_options(config, model.plan, grid).stage.cut.empty()) cut = StageCut::automatic();
  if (is_open(config)) return "";
  return fmt::format("grid.cut auto: stages of {} blocks, as before", shares_text(cut.blocks()));
}

std::string settle_cut(Runtime& runtime, ops::Context& ctx, const std::vector<int>& order,
                       const GridShape& shape, const models::Model& model, Config& config) {
  if (!is_open(config)) return "";
  const int stages = shape[Axis::kPipeline];
  if (stages == 1) return "grid.cut auto: one stage holds all blocks";
  const auto place = static_cast<int>(std::ranges::find(order, runtime.rank()) - order.begin());
  std::vector<double> measured(static_cast<std::size_t>(stages),
                               std::numeric_limits<double>::max());
  const int stage = shape.index(place % shape.ranks(), Axis::kPipeline);  // of an island
  runtime.world().barrier().wait_host();
  measured[static_cast<std::size_t>(stage)] = ops::measured_speed(ctx);
  runtime.world().all_reduce_host(std::span<double>(measured), ReduceOp::kMin);
  const std::vector<double> speeds = speeds_of_stages(measured);
  const auto layout = parallel::schedule_layout(config.grid.schedule, stages, config.grid.chunks);
  const std::vector<int> bounds = parallel::cut_model(
      model.plan, layout, step_options(config, model.plan, shape).stage.trained, speeds);
  std::vector<int> blocks;
  for (std::size_t part = 1; part < bounds.size(); ++part) {
    blocks.push_back(bounds[part] - bounds[part - 1]);
  }
  config.grid.cut = StageCut::automatic(blocks);
  const auto [least, most] = std::ranges::minmax(measured);
  return fmt::format("grid.cut auto: stages of {} blocks, by {:.3g} to {:.3g} GFLOP/s in products",
                     shares_text(blocks), least * 1e-9, most * 1e-9);
}

std::vector<double> speeds_of_stages(std::vector<double> measured) {
  const double fastest = std::ranges::max(measured);
  for (double& speed : measured) {
    if (speed >= kAsFast * fastest) speed = fastest;
  }
  return measured;
}

}  // namespace trireme
