#include "trireme/setup/run_layouts.h"

#include <algorithm>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/setup/dry_run_input.h"
#include "trireme/setup/run_grid.h"

namespace trireme {
namespace {

// A model without tensor parallelism, or with a number of heads, takes some numbers of tensor ranks
// alone.
bool can_have_tensor_ranks(const models::Model& model, int tensor) {
  if (tensor == 1 || !model.check_grid) return true;
  try {
    model.check_grid(GridShape(1, 1, tensor));
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

// Some keys, such as comm.compress, need whole gradients.
bool can_have_shards(const Config& config, int stage) {
  Config made = config;
  made.shard.stage = stage;
  if (stage == 0) made.shard.group.reset();
  try {
    check_config_without_data(made);
    return true;
  } catch (const ConfigError&) {
    return false;
  }
}

}  // namespace

GivenKeys chosen_keys(const Options& options) {
  const std::string& file = options.config_file();
  const bool of_run = !file.empty() && run_of_config(file).has_value();
  return of_run ? options.given_by_flags() : options.given();
}

plan::LayoutSpace layout_space(const Config& config, const GivenKeys& given,
                               const models::Model& model, int ranks_of_node) {
  plan::LayoutSpace space;
  space.samples = config.batch.global;
  space.blocks = static_cast<int>(model.plan.blocks.size());
  space.most_tensor = ranks_of_node;
  while (!can_have_tensor_ranks(model, space.most_tensor)) --space.most_tensor;
  const auto is_given = [&](const char* key) { return given.contains(key); };
  if (is_given("grid.data")) space.data = config.grid[kDataAxes];
  if (is_given("grid.pipeline")) space.pipeline = config.grid[Axis::kPipeline];
  if (is_given("grid.tensor")) space.tensor = config.grid[Axis::kTensor];
  if (is_given("shard.stage")) space.shard_stage = config.shard.stage;
  if (is_given("shard.group")) space.shard_group = config.shard.group;
  std::erase_if(space.shard_stages, [&](int stage) { return !can_have_shards(config, stage); });
  const bool knows_micro = is_given("batch.micro") && config.batch.micro.is_known();
  if (knows_micro) space.micro = int{config.batch.micro};
  if (is_given("grid.schedule")) space.schedule = config.grid.schedule;
  if (is_given("grid.chunks")) space.chunks = config.grid.chunks;
  if (is_given("recompute.blocks")) space.recomputed_blocks = config.recompute.blocks;
  // A number of blocks says nothing without its mode.
  if (is_given("recompute.mode") || space.recomputed_blocks) {
    space.recompute = config.recompute.mode;
  }
  space.cuts = !is_given("grid.cut");
  if (is_given("grid.sequence_parallel")) space.sequence_parallel = config.grid.sequence_parallel;
  if (space.tensor && !can_have_tensor_ranks(model, *space.tensor)) {
    model.check_grid(GridShape(1, 1, *space.tensor));  // says why
  }
  return space;
}

Config with_layout(const Config& config, const plan::Layout& layout) {
  Config made = config;
  made.grid.ask_for(layout.grid);
  const int data = layout.grid.extent(kDataAxes);
  made.shard.stage = layout.shard_stage;
  made.shard.group.reset();
  const bool groups = layout.shard_stage >= 1 && layout.grid[Axis::kShard] < data;
  if (groups) made.shard.group = layout.grid[Axis::kShard];
  made.batch.micro = layout.micro;
  made.grid.schedule = layout.schedule;
  made.grid.chunks.reset();
  if (layout.schedule == "interleaved") made.grid.chunks = layout.chunks;
  made.recompute.mode = layout.recompute;
  made.recompute.blocks = layout.recomputed_blocks;
  made.grid.sequence_parallel = layout.sequence_parallel;
  if (!layout.cut.empty()) made.grid.cut = StageCut::of_blocks(layout.cut);
  return made;
}

plan::Layout layout_of(const Config& config, int ranks) {
  const GridShape grid = resolve_run_grid(config, ranks);
  const auto stages =
      parallel::schedule_layout(config.grid.schedule, grid[Axis::kPipeline], config.grid.chunks);
  return {.grid = grid,
          .shard_stage = config.shard.stage,
          .micro = int{config.batch.micro},
          .schedule = config.grid.schedule,
          .chunks = stages.chunks,
          .recompute = config.recompute.mode,
          .recomputed_blocks = config.recompute.blocks,
          .sequence_parallel = config.grid.sequence_parallel,
          .cut = config.grid.cut.blocks()};
}

std::optional<plan::DryRunInput> layout_input(const Config& config, const models::Model& model,
                                              const plan::Layout& layout,
                                              const plan::DryDevice& device, std::string* why_not) {
  try {
    Config made = with_layout(config, layout);
    const int data = layout.grid.extent(kDataAxes);
    if (made.batch.global % (layout.micro * data) != 0) made.batch.global = layout.micro * data;
    const GridShape grid = resolve_run_grid(made, layout.grid.ranks());
    check_model_fits_grid(made, model, grid);
    plan::DryRunInput input = dry_run_input(made, model, grid);
    input.device = device;
    return input;
  } catch (const ConfigError& error) {
    if (why_not != nullptr) *why_not = error.what();
    return {};
  }
}

std::string layout_flags(const plan::Layout& layout) {
  const int data = layout.grid.extent(kDataAxes);
  std::string text = fmt::format("--grid.data {} --grid.pipeline {} --grid.tensor {}", data,
                                 layout.grid[Axis::kPipeline], layout.grid[Axis::kTensor]);
  if (layout.shard_stage > 0) text += fmt::format(" --shard.stage {}", layout.shard_stage);
  if (layout.shard_stage > 0 && layout.grid[Axis::kShard] < data) {
    text += fmt::format(" --shard.group {}", layout.grid[Axis::kShard]);
  }
  text += fmt::format(" --batch.micro {}", layout.micro);
  if (layout.grid[Axis::kPipeline] > 1) {
    text += " --grid.schedule " + layout.schedule;
    if (layout.schedule == "interleaved") text += fmt::format(" --grid.chunks {}", layout.chunks);
    if (!layout.cut.empty()) text += fmt::format(" --grid.cut {}", fmt::join(layout.cut, ","));
  }
  if (layout.recompute != "none") text += " --recompute.mode " + layout.recompute;
  if (layout.recomputed_blocks) {
    text += fmt::format(" --recompute.blocks {}", *layout.recomputed_blocks);
  }
  if (layout.sequence_parallel) text += " --grid.sequence_parallel true";
  return text;
}

}  // namespace trireme
