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

// What a pass over micro-batches adds up to.
struct Sums {
  double loss = 0.0;
  double targets = 0.0;
  double stop = 0.0;  // ranks that want to stop
};

void add(Sums& sums, const nn::MicroBatch& batch) {
  sums.loss += batch.loss_sum.data<double>()[0];
  const auto targets = batch.targets.span<std::int32_t>();
  sums.targets += static_cast<double>(std::count_if(
      targets.begin(), targets.end(), [](std::int32_t target) { return target >= 0; }));
}

// Over all ranks, on every rank. Each replica's last stage speaks for it, through one of its tensor
// ranks.
Sums total(const ProcessGrid& grid, const Stage& stage, Sums mine) {
  if (!stage.last() || grid.tensor_index() != 0) mine.loss = mine.targets = 0.0;
  std::array<double, 3> values{mine.loss, mine.targets, mine.stop};
  grid.world().all_reduce_host(std::span<double>(values), ReduceOp::kSum);
  return {values[0], values[1], values[2]};
}

// Micro-batches of an evaluation that are on their way through the stages at one time.
constexpr int kEvaluationWave = 8;

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
      norm_(ctx.allocate({1}, DType::kF64, MemoryUse::kWorkspace)) {
  ops::write_step_state(ctx_, {.loss_scale = options.loss_scaling.initial});
}

StepResult TrainerStep::accumulate(std::span<const nn::MicroBatch> mine, bool wants_stop) {
  const int count = static_cast<int>(mine.size());
  reducer_.begin_step(count);
  executor_.train(make_pipeline_schedule(options_.schedule, grid_.shape().pipeline, count), mine,
                  reducer_);
  {
    const FlightRecorder::Phase phase(grid_.runtime().recorder(), "last gradients");
    reducer_.finish_step();
  }
  Sums sums;
  for (const nn::MicroBatch& batch : mine) add(sums, batch);
  sums.stop = wants_stop ? 1.0 : 0.0;
  sums = total(grid_, stage_, sums);
  StepResult result;
  result.loss = sums.loss / sums.targets;
  result.targets = static_cast<std::int64_t>(sums.targets);
  result.stop = sums.stop > 0.0;
  return result;
}

StepResult TrainerStep::train(std::span<const nn::MicroBatch> mine, std::int64_t step,
                              float learning_rate, std::uint64_t random_key, bool wants_stop) {
  ops::StepInputs inputs = {.step = step, .random_key = random_key, .learning_rate = learning_rate};
  ops::write_step_inputs(ctx_, inputs);
  StepResult result = accumulate(mine, wants_stop);
  const FlightRecorder::Phase phase(grid_.runtime().recorder(), "optimizer");
  inputs.gradient_scale = 1.0f / static_cast<float>(result.targets);
  ops::write_step_inputs(ctx_, inputs);
  sum_of_squared_gradients(ctx_, stage_, norm_sum_);
  ops::finish_gradient_norm(ctx_, norm_sum_, options_.clip, norm_);
  optimizer_->step(ctx_);
  if (!options_.loss_scaling.is_fixed()) ops::update_loss_scale(ctx_, options_.loss_scaling);
  result.gradient_norm = norm_.data<double>()[0];
  const ops::StepState left = ops::read_step_state(ctx_);
  result.finite = left.finite != 0;
  result.loss_scale = static_cast<double>(left.loss_scale);
  return result;
}

EvaluationResult evaluate(ops::Context& ctx, const Stage& stage, int count,
                          const std::function<nn::MicroBatch(int)>& make) {
  PipelineExecutor executor(ctx, stage);
  Sums sums;
  for (int begin = 0; begin < count; begin += kEvaluationWave) {
    std::vector<nn::MicroBatch> wave;
    for (int i = begin; i < std::min(begin + kEvaluationWave, count); ++i) wave.push_back(make(i));
    executor.forward(wave);
    for (const nn::MicroBatch& batch : wave) add(sums, batch);
  }
  sums = total(stage.grid(), stage, sums);
  return {sums.loss, static_cast<std::int64_t>(sums.targets)};
}

}  // namespace trireme::parallel
