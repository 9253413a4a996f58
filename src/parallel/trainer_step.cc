#include "trireme/parallel/trainer_step.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>
#include <optional>
#include <utility>

#include "trireme/base/text.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/lengths.h"
#include "trireme/ops/update.h"
#include "trireme/parallel/connections.h"

#include "parallel/gradient_clip.h"
#include "parallel/state_updates.h"
#include "parallel/step_capture.h"

namespace trireme::parallel {
namespace {

std::int64_t targets_of(std::span<const nn::MicroBatch> batches) {
  return std::accumulate(
      batches.begin(), batches.end(), std::int64_t{0},
      [](std::int64_t sum, const nn::MicroBatch& batch) { return sum + batch.target_count; });
}

// Collective over the grid where the model's blocks make collective calls for each micro-batch:
// then every replica runs as many as the one that has the most. Otherwise a replica runs its own
// `count`.
int micro_batches_to_run(const Stage& stage, int count) {
  if (!stage.collective()) return count;
  return stage.grid().world().all_reduce_host(count, ReduceOp::kMax);
}

// What an evaluation counts besides the loss.
struct EvaluationCounts {
  std::int64_t targets = 0;
  std::int64_t counting = 0;  // waves that counted correct answers
  nn::CorrectCounts correct;

  void add(const std::optional<nn::CorrectCounts>& wave) {
    if (!wave) return;
    ++counting;
    correct.top1 += wave->top1;
    correct.top5 += wave->top5;
  }
  // Collective over comm. A rank without micro-batches does not know whether others count.
  void reduce(Communicator& comm) {
    std::array<std::int64_t, 4> sums{targets, counting, correct.top1, correct.top5};
    comm.all_reduce_host(std::span<std::int64_t>(sums), ReduceOp::kSum);
    targets = sums[0];
    counting = sums[1];
    correct = {sums[2], sums[3]};
  }
  nn::EvaluationSums sums(double loss_sum) const {
    return {loss_sum, targets, counting > 0 ? std::optional(correct) : std::nullopt};
  }
};

// The number of micro-batches of an evaluation that are in flight at a time.
constexpr int kEvaluationWave = 8;

}  // namespace

TrainerStep::TrainerStep(ops::Context& ctx, const ProcessGrid& grid, const nn::ModelPlan& plan,
                         const StepOptions& options)
    : ctx_(ctx),
      grid_(grid),
      options_(options),
      stage_(ctx, grid, plan, options.stage),
      reducer_(
          ctx, stage_,
          {.travel = options.reduce, .bits = options.reduce_bits, .to_shard = stage_.sharded()},
          options.work, options.runs.blocks),
      states_(std::make_unique<StateUpdates>(ctx, stage_, options.work)),
      executor_(ctx, stage_, options.runs),
      optimizer_(std::make_unique<optim::Optimizer>(options.optimizer, ctx, grid, stage_.groups())),
      clip_(std::make_unique<GradientClip>(stage_, options.clip_value, options.clip_each)),
      norm_limbs_(ctx.allocate({kExactLimbs}, DType::kI64, MemoryUse::kWorkspace)),
      norm_sum_(ctx.allocate({1}, DType::kF64, MemoryUse::kWorkspace)),
      norm_(ctx.allocate({1}, DType::kF64, MemoryUse::kWorkspace)),
      capture_(std::make_unique<StepCapture>(ctx, grid, options.cuda_graphs)) {
  ops::write_step_state(ctx_, {.loss_scale = options.loss_scaling.initial});
  if (averages()) stage_.states().hold_averages(ctx_);
}

TrainerStep::~TrainerStep() = default;

std::size_t TrainerStep::connect(std::int64_t batch, std::int64_t length) {
  if (ctx_.device.kind == DeviceKind::kCpu || grid_.world().size() == 1) return 0;
  std::size_t taken = connect_stage(ctx_, stage_, batch, length);
  const std::size_t before = free_device_memory(ctx_);
  stage_.weights().connect(ctx_);
  reducer_.connect();
  states_->connect();
  optimizer_->connect(ctx_);
  clip_->run(ctx_);
  sum_of_squared_gradients(ctx_, stage_, norm_limbs_, norm_sum_);
  const std::size_t after = free_device_memory(ctx_);
  taken += before > after ? before - after : 0;
  return taken;
}

// Sums what the hosts know before anything is computed: the number of targets, by which gradients
// are divided, the number of ranks that want to stop, and the number of micro-batches.
QueuedStep TrainerStep::begin(std::span<const nn::MicroBatch> mine, bool wants_stop) {
  QueuedStep queued;
  queued.counts_loss_ = stage_.speaks_for_replica();
  const auto own = static_cast<std::int64_t>(mine.size());
  std::array<std::int64_t, 3> sums{queued.counts_loss_ ? targets_of(mine) : 0, wants_stop ? 1 : 0,
                                   queued.counts_loss_ ? own : 0};
  grid_.world().all_reduce_host(std::span<std::int64_t>(sums), ReduceOp::kSum);
  queued.targets_ = sums[0];
  queued.stop_ = sums[1] > 0;
  queued.all_targets_ = queued.targets_;
  if (across_ != nullptr) {
    queued.all_targets_ = across_->all_reduce_host(queued.targets_, ReduceOp::kSum);
  }
  if (options_.work.known()) {
    work_ = options_.work;
    TRIREME_CHECK(
        work_.replicas() == grid_.extent(kDataAxes) && own == work_.count(grid_.index(kDataAxes)),
        "a replica has its share of the micro-batches");
    micro_batches_ = stage_.collective() ? work_.most() : static_cast<int>(own);
  } else {
    work_ = WorkSplit::even(static_cast<int>(sums[2]), grid_.extent(kDataAxes));
    micro_batches_ = micro_batches_to_run(stage_, static_cast<int>(own));
  }
  return queued;
}

StepResult QueuedStep::result(const ProcessGrid& grid) const {
  numbers_.wait();
  StepResult result;
  result.targets = targets_;
  result.stop = stop_;
  if (!computes_) {
    result.loss = std::numeric_limits<double>::quiet_NaN();
    return result;
  }
  ExactSum loss;
  if (counts_loss_) numbers_.add_losses_to(loss);
  grid.world().all_reduce_host(loss.limbs(), ReduceOp::kSum);
  result.loss = loss.value() / static_cast<double>(targets_);
  if (numbers_.has_optimizer()) {
    result.gradient_norm = numbers_.gradient_norm();
    result.finite = numbers_.state().finite != 0;
    result.loss_scale = shortest(numbers_.state().loss_scale);
  }
  return result;
}

void TrainerStep::add_up_gradients(std::span<const nn::MicroBatch> mine, bool keeps) {
  TRIREME_CHECK(!mine.empty(), "this replica has no micro-batch in this step");
  reducer_.begin_step(static_cast<int>(mine.size()), keeps);  // empty ones contribute nothing
  if (!schedule_ || schedule_->micro_batches != micro_batches_) {
    schedule_ = make_pipeline_schedule(options_.schedule, stage_.layout(), micro_batches_,
                                       stage_.first_trained_part());
  }
  // Empty ones come first: then the last is not empty on any replica, and all replicas complete
  // their groups at the same point between the calls of the blocks.
  std::vector<nn::MicroBatch> batches(static_cast<std::size_t>(micro_batches_) - mine.size());
  batches.insert(batches.end(), mine.begin(), mine.end());
  number(std::span(batches).last(mine.size()));
  stage_.weights().refresh(ctx_);
  executor_.train(*schedule_, batches, reducer_);
  stage_.weights().finish(ctx_);
  const FlightRecorder::Phase phase(grid_.runtime().recorder(), "last gradients");
  reducer_.finish_step();
}

StepResult TrainerStep::accumulate(std::span<const nn::MicroBatch> mine, bool wants_stop) {
  QueuedStep queued = begin(mine, wants_stop);
  add_up_gradients(mine, /*keeps=*/false);
  states_->discard();
  queued.numbers_ = StepNumbers(ctx_, mine);
  return queued.result(grid_);
}

void TrainerStep::number(std::span<nn::MicroBatch> mine) const {
  if (stage_.states().empty()) return;
  const int replica = grid_.index(kDataAxes), replicas = work_.replicas();
  TRIREME_CHECK(std::ssize(mine) == work_.count(replica),
                "a replica has its share of the micro-batches");
  for (int i = 0; i < work_.count(replica); ++i) {
    const Micro micro = work_.micro(replica, i);
    TRIREME_CHECK(!stage_.together() || (micro.number == i * replicas + replica &&
                                         work_.micro_batches() % replicas == 0),
                  "the replicas compute other micro-batches together than the model wants");
    mine[static_cast<std::size_t>(i)].place = {micro.number, work_.micro_batches(), micro.run};
  }
}

QueuedStep TrainerStep::queue(std::span<const nn::MicroBatch> mine, std::int64_t step,
                              float learning_rate, std::uint64_t random_key, bool wants_stop) {
  QueuedStep queued = begin(mine, wants_stop);
  queued.computes_ = queued.all_targets_ > 0 || ctx_.dry;  // a dry run does not know its targets
  if (!queued.computes_) return queued;
  ops::write_step_inputs(ctx_, {.step = step,
                                .random_key = random_key,
                                .learning_rate = learning_rate,
                                .gradient_scale = 1.0f / static_cast<float>(queued.all_targets_)});
  // Every step changes the weights, so a captured step must gather them too.
  stage_.weights().trained();
  const auto computed = capture_->run(mine, step, [this](auto batches) { compute(batches); });
  stage_.weights().trained();
  queued.numbers_ = StepNumbers(ctx_, computed, norm_);
  queued.news_ = capture_->take_news();
  return queued;
}

void TrainerStep::share(const WorkSplit& work) {
  TRIREME_CHECK(work.replicas() == options_.work.replicas() &&
                    work.micro_batches() == options_.work.micro_batches() && work.runs() == 1 &&
                    options_.work.runs() == 1,
                "only the shares of a step change");
  options_.work = work;
}

void TrainerStep::add_up_islands() {
  for (const nn::FlatGroup* group : stage_.trained_groups()) {
    across_->all_reduce(ctx_.stream, group->gradient_shard(), ReduceOp::kSum).wait_on(ctx_.stream);
  }
}

void TrainerStep::compute(std::span<const nn::MicroBatch> mine) {
  add_up_gradients(mine, /*keeps=*/true);
  if (across_ != nullptr) add_up_islands();
  const FlightRecorder::Phase phase(grid_.runtime().recorder(), "optimizer");
  clip_->run(ctx_);
  sum_of_squared_gradients(ctx_, stage_, norm_limbs_, norm_sum_);
  ops::finish_gradient_norm(ctx_, norm_sum_, options_.clip, norm_);
  optimizer_->step(ctx_);
  states_->commit(work_.micro_batches());
  if (averages()) stage_.states().average(ctx_, *options_.optimizer.average);
  reducer_.carry_over(options_.loss_scaling);
  if (!options_.loss_scaling.is_fixed()) ops::update_loss_scale(ctx_, options_.loss_scaling);
}

void TrainerStep::begin_averages(const std::function<bool(const std::string&)>& of) {
  optimizer_->begin_averages(ctx_, of);
  const auto& states = stage_.states().states();
  if (averages() && !states.empty() && of(states.front()->name())) {
    stage_.states().begin_averages(ctx_);
  }
  if (options_.optimizer.weights_apart()) optimizer_->write_weights(ctx_, false);
}

void TrainerStep::values_changed() {
  stage_.refresh_weights(ctx_);
  if (options_.optimizer.weights_apart()) optimizer_->write_weights(ctx_, false);
}

void TrainerStep::use_averages(bool averaged) {
  if (!options_.optimizer.weights_apart()) return;
  optimizer_->write_weights(ctx_, averaged);
  stage_.states().exchange_averages(ctx_);
  stage_.weights().trained();
}

void TrainerStep::scale_gradients(float factor) {
  for (const nn::FlatGroup* group : stage_.trained_groups()) {
    ops::scale(ctx_, group->gradient_shard(), factor);
  }
}

void TrainerStep::gather_kept() {
  reducer_.add_up_kept();
  scale_gradients(1.0f / ops::read_step_state(ctx_).loss_scale);
}

void TrainerStep::take_kept() {
  scale_gradients(ops::read_step_state(ctx_).loss_scale);
  reducer_.take_kept();
}

void TrainerStep::recompute_states(int steps,
                                   const std::function<std::vector<nn::MicroBatch>()>& next) {
  const ops::StepState kept = ops::read_step_state(ctx_);
  ops::StepState finite = kept;
  finite.finite = 1;
  ops::write_step_state(ctx_, finite);
  stage_.states().begin_mean(ctx_);
  int micro_batches = 0;
  for (int step = 0; step < steps; ++step) {
    const std::vector<nn::MicroBatch> mine = next();
    begin(mine, false);
    add_up_gradients(mine, /*keeps=*/false);
    states_->commit(work_.micro_batches());
    micro_batches += work_.micro_batches();
  }
  stage_.states().end_mean(ctx_, micro_batches);
  ops::write_step_state(ctx_, kept);
}

StepResult TrainerStep::train(std::span<const nn::MicroBatch> mine, std::int64_t step,
                              float learning_rate, std::uint64_t random_key, bool wants_stop) {
  return queue(mine, step, learning_rate, random_key, wants_stop).result(grid_);
}

nn::EvaluationSums evaluate(PipelineExecutor& executor, int count,
                            const std::function<nn::MicroBatch(int)>& make) {
  ops::Context& ctx = executor.context();
  const Stage& stage = executor.stage();
  stage.weights().refresh(ctx);
  ExactSum losses;
  EvaluationCounts counts;
  const auto take = [&](const StepNumbers& wave) {
    wave.wait();
    wave.add_losses_to(losses);
    counts.add(wave.correct());
  };
  // The results of a wave are read after the next wave is queued, so that a GPU always has work.
  std::optional<StepNumbers> queued;
  const int all = micro_batches_to_run(stage, count);
  for (int begin = 0; begin < all; begin += kEvaluationWave) {
    const int end = std::min(begin + kEvaluationWave, all);
    std::vector<nn::MicroBatch> wave;
    for (int i = begin; i < std::min(end, count); ++i) wave.push_back(make(i));
    const std::size_t own = wave.size();
    wave.resize(static_cast<std::size_t>(end - begin));  // with empty ones
    executor.forward(wave);
    wave.resize(own);
    counts.targets += targets_of(wave);
    const std::optional<StepNumbers> before = std::exchange(queued, StepNumbers(ctx, wave));
    if (before) take(*before);
  }
  if (queued) take(*queued);
  stage.weights().finish(ctx);
  Communicator& world = stage.grid().world();
  if (!stage.speaks_for_replica()) {
    losses = {};
    counts = {};
  }
  world.all_reduce_host(losses.limbs(), ReduceOp::kSum);
  counts.reduce(world);
  return counts.sums(losses.value());
}

}  // namespace trireme::parallel
