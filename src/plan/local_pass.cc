#include "trireme/plan/local_pass.h"

#include <cstring>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/dry_rank.h"

namespace trireme::plan {
namespace {

// Leaves out blocks that are like the one before them, in what trains of them, too.
void keep_one_of_each_kind(nn::ModelPlan& model, nn::TrainedParameters& trained) {
  std::vector<nn::BlockPlan> kept;
  std::vector<std::int64_t> elements;
  const auto trains = [&](std::size_t i) {
    return trained.elements.empty() || trained.elements[i] > 0;
  };
  for (std::size_t i = 0; i < model.blocks.size(); ++i) {
    const nn::BlockPlan& block = model.blocks[i];
    const bool again = i > 0 && !block.kind.empty() && block.kind == model.blocks[i - 1].kind &&
                       trains(i) == trains(i - 1);
    if (again) continue;
    kept.push_back(block);
    if (!trained.elements.empty()) elements.push_back(trained.elements[i]);
  }
  model.blocks = std::move(kept);
  trained.elements = std::move(elements);
}

// The same step on one stage, two micro-batches for each replica: the second adds to gradients.
constexpr int kMicroBatches = 2;
DryRunInput alone(const DryRunInput& input) {
  DryRunInput made = input;
  made.grid[Axis::kPipeline] = 1;
  made.islands = 1;
  parallel::StepOptions& step = made.step;
  keep_one_of_each_kind(made.model, step.stage.trained);
  const int replicas = made.grid.extent(kDataAxes);
  step.work = parallel::WorkSplit::even(kMicroBatches * replicas, replicas,
                                        {.dealt = input.step.work.rule().dealt});
  step.stage.chunks = 1;
  step.stage.order = parallel::PipelineLayout::Order::kLoop;
  step.stage.cut = {};
  step.stage.seed = {};
  step.stage.whole_gradients = true;
  step.schedule = step.schedule.starts_with("zb-") ? "zb-h1" : "1f1b";
  step.runs.recomputed_blocks.reset();
  step.cuda_graphs = false;
  return made;
}

// What the host makes of a batch that nobody reads may be anything; indices of rows may not.
nn::MicroBatch batch_of_zeros(ops::Context& ctx, const DryRunInput& input) {
  const nn::HostMicroBatch host = input.make_batch(ctx, input.micro, input.model.length, {});
  std::memset(host.samples.raw(), 0, host.samples.bytes());
  for (const nn::Field& field : host.fields) {
    std::memset(field.tensor.raw(), 0, field.tensor.bytes());
  }
  return host.to_device(ctx, input.micro * input.model.length, /*training=*/true);
}

}  // namespace

void local_pass(const ops::Context& ctx, const DryRunInput& input) {
  const DryRunInput short_one = alone(input);
  DryRank rank({.rank = 0,
                .size = short_one.grid.ranks(),
                .nccl = input.device.nccl,
                .keeps_order = input.keeps_order});
  ops::Context own = ctx;
  own.step_state = ops::make_step_state(own);
  try {
    const ProcessGrid grid(rank, short_one.grid);
    parallel::TrainerStep step(own, grid, short_one.model, short_one.step);
    std::vector<nn::MicroBatch> batches;
    for (int i = 0; i < kMicroBatches; ++i) batches.push_back(batch_of_zeros(own, short_one));
    step.train(batches, 1, 0.0f, 1);
  } catch (const OutOfMemoryError&) {  // kernels load at their first launch then
  }
  own.allocator->give_back_reserve();
  own.stream.synchronize();
}

}  // namespace trireme::plan
