#include "trireme/parallel/trainer_step.h"

#include <algorithm>
#include <array>

#include "trireme/ops/update.h"

namespace trireme::parallel {
namespace {

std::vector<optim::FlatShard> shards_of(const Stage& stage) {
  std::vector<optim::FlatShard> shards;
  for (const nn::FlatGroup* group : stage.groups()) {
    shards.push_back({group->master(), group->gradients(), group->weights(), group->decay()});
  }
  return shards;
}

// Sum of losses and count of targets over all replicas, on every rank. Each replica's last stage
// speaks for it, through one of its tensor ranks.
EvaluationResult total(const ProcessGrid& grid, const Stage& stage,
                       std::span<const nn::MicroBatch> mine) {
  std::array<double, 2> sums{};
  if (stage.last() && grid.tensor_index() == 0) {
    for (const nn::MicroBatch& batch : mine) {
      sums[0] += batch.loss_sum.data<double>()[0];
      const auto targets = batch.targets.span<std::int32_t>();
      sums[1] += static_cast<double>(
          std::count_if(targets.begin(), targets.end(), [](std::int32_t target) { return target >= 0; }));
    }
  }
  grid.world().all_reduce_host(std::span<double>(sums), ReduceOp::kSum);
  return {sums[0], static_cast<std::int64_t>(sums[1])};
}

}  // namespace

MicroBatchShare share_of(int micro_batches, int replicas, int replica) {
  const auto begin = [&](int r) {
    return static_cast<int>(std::int64_t{micro_batches} * r / replicas);
  };
  return {begin(replica), begin(replica + 1) - begin(replica)};
}

TrainerStep::TrainerStep(ops::Context& ctx, const ProcessGrid& grid, const nn::ModelPlan& plan,
                         const StepOptions& options)
    : ctx_(ctx),
      grid_(grid),
      options_(options),
      stage_(ctx, grid, plan, options.stage),
      reducer_(ctx, stage_),
      executor_(ctx, stage_),
      optimizer_(optim::make_optimizer(options.optimizer, ctx, shards_of(stage_))),
      norm_sum_(ctx.allocate({1}, DType::kF64, MemoryUse::kWorkspace)),
      norm_(ctx.allocate({1}, DType::kF64, MemoryUse::kWorkspace)) {}

StepResult TrainerStep::accumulate(std::span<const nn::MicroBatch> mine) {
  const int count = static_cast<int>(mine.size());
  reducer_.begin_step(count);
  executor_.train(make_pipeline_schedule(options_.schedule, grid_.shape().pipeline, count), mine, reducer_);
  reducer_.finish_step();
  const EvaluationResult sums = total(grid_, stage_, mine);
  return {sums.loss_sum / static_cast<double>(sums.targets), 0.0, sums.targets, true};
}

StepResult TrainerStep::train(std::span<const nn::MicroBatch> mine, std::int64_t step,
                              float learning_rate, std::uint64_t random_key) {
  ops::StepState& state = *ctx_.step_state;
  state.step = step;
  state.learning_rate = learning_rate;
  state.random_key = random_key;
  StepResult result = accumulate(mine);
  state.gradient_scale = 1.0f / static_cast<float>(result.targets);
  sum_of_squared_gradients(ctx_, stage_, norm_sum_);
  ops::finish_gradient_norm(ctx_, norm_sum_, options_.clip, norm_);
  optimizer_->step(ctx_);
  result.gradient_norm = norm_.data<double>()[0];
  result.finite = state.finite != 0;
  return result;
}

EvaluationResult TrainerStep::evaluate(std::span<const nn::MicroBatch> mine) {
  executor_.forward(mine);
  return total(grid_, stage_, mine);
}

}  // namespace trireme::parallel
