#include "plan/dry_steps.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/islands.h"
#include "trireme/parallel/gradient_reducer.h"
#include "trireme/parallel/tree_sum.h"

namespace trireme::plan {
namespace {

// Makes a micro-batch as the trainer does; nobody reads what is in it.
nn::HostMicroBatch make_host_batch(ops::Context& ctx, const DryRunInput& input,
                                   const parallel::Stage& stage) {
  TRIREME_CHECK(input.make_batch, "a dry run is told how micro-batches are made");
  return input.make_batch(
      ctx, input.micro, input.model.length,
      {.inputs = stage.grid().index(Axis::kPipeline) == 0, .targets = stage.last()});
}
nn::MicroBatch make_micro_batch(ops::Context& ctx, const DryRunInput& input,
                                const parallel::Stage& stage) {
  const nn::HostMicroBatch host = make_host_batch(ctx, input, stage);
  return host.to_device(ctx, input.micro * input.model.length, input.trains);
}
std::vector<nn::MicroBatch> make_batches(ops::Context& ctx, const DryRunInput& input,
                                         const parallel::Stage& stage, int count) {
  std::vector<nn::MicroBatch> made;
  for (int i = 0; i < count; ++i) made.push_back(make_micro_batch(ctx, input, stage));
  return made;
}

// One rank of the dry run: its world, its device, its place.
struct Rank {
  std::shared_ptr<ProgramLog> log;  // null: nothing is recorded
  DryRank runtime;
  ops::Context ctx;
  Islands islands;
  ProcessGrid grid;
  std::string_view between_steps = {};  // what is done there now; empty: a step
  std::vector<DryTraffic> sent = {};    // before what is counted now

  Rank(const DryRunInput& input, int place)
      : log(input.records ? std::make_shared<ProgramLog>() : nullptr),
        runtime({.rank = place,
                 .size = input.grid.ranks() * input.islands,
                 .nccl = input.device.nccl,
                 .keeps_order = input.keeps_order,
                 .log = log}),
        ctx(input.device.on_gpus() ? ops::make_dry_cuda_context(input.device.gpu_memory, log)
                                   : ops::make_dry_context(input.device.threads, log)),
        islands(runtime, input.grid, input.islands),
        grid(runtime, input.grid, islands.ranks()) {
    ctx.allocator->reached({.name = "start"});
    runtime.recorder().watch_phases([this](std::string_view name, std::int64_t number) {
      if (!between_steps.empty()) return;
      if (log) log->phase(name, number);
      ctx.allocator->reached({.name = name.empty() ? "step" : name, .number = number});
    });
  }

  // Counts from here on as a step of its own.
  void begin_step() {
    take_traffic();
    *ctx.dry = {};
    if (log) log->take();
    ctx.allocator->reached({.name = "step"});
  }

  // Ends a step.
  void take_step_into(DryRunResult& result) {
    result.traffic = take_traffic();
    result.operations = *ctx.dry;
    if (!log) return;
    result.program = log->take();
    result.lanes = runtime.lanes();
  }
  // Counts from here on as what is done between steps.
  void leave_steps(std::string_view what) {
    between_steps = what;
    ctx.allocator->reached({.name = what});
  }
  std::vector<DryTraffic> take_traffic() {
    const std::vector<DryTraffic> taken = runtime.take_traffic();
    sent.insert(sent.end(), taken.begin(), taken.end());
    return taken;
  }
  // Call it before the model is gone.
  void take_memory_into(const DryRunInput& input, DryRunResult& result) {
    result.memory = ctx.allocator->stats();
    take_traffic();
    if (input.device.nccl) {
      result.nccl = nccl_memory(sent, runtime.rank(), input.device.nccl_setting);
    }
  }
};

// Returns what a reader of `steps` steps of `count` micro-batches holds ahead of their use, at most
// while a step's are used.
std::vector<nn::HostMicroBatch> batches_ahead(const DryRunInput& input, Rank& rank,
                                              const parallel::Stage& stage, int count,
                                              std::int64_t steps) {
  std::vector<nn::HostMicroBatch> held;
  if (!input.read_ahead || input.device.on_gpus()) return held;
  const std::int64_t most = std::min<std::int64_t>(input.read_ahead(count), (steps - 1) * count);
  for (std::int64_t i = 0; i < most; ++i) held.push_back(make_host_batch(rank.ctx, input, stage));
  return held;
}

// Computes statistics anew as a run does before evaluations. The first step holds the most.
void recompute_states(const DryRunInput& input, Rank& rank, parallel::TrainerStep& step,
                      int count) {
  rank.leave_steps("optim.recompute_norms");
  const auto ahead = batches_ahead(input, rank, step.stage(), count, input.recomputed_steps);
  step.use_averages(true);
  step.recompute_states(1, [&] { return make_batches(rank.ctx, input, step.stage(), count); });
  step.use_averages(false);
}

void meet(Rank& rank, parallel::Meeting& meeting, int fragments) {
  rank.leave_steps("meeting");
  for (int fragment = 0; fragment < fragments; ++fragment) meeting.start(fragment, 1);
  for (int fragment = 0; fragment < fragments; ++fragment) meeting.finish(fragment);
}

// Runs steps up to the second, whose program and operations count.
void train_steps(const DryRunInput& input, int left_out, int first, Rank& rank,
                 DryRunResult& result) {
  parallel::StepOptions options = input.step;
  options.work = options.work.shortened(left_out);
  parallel::TrainerStep step(rank.ctx, rank.grid, input.model, options);
  std::optional<parallel::Meeting> meeting;
  if (input.meeting) meeting.emplace(rank.ctx, step, rank.islands.across(), *input.meeting);
  step.connect(input.micro, input.model.length);
  constexpr auto kManySteps = std::numeric_limits<std::int32_t>::max();
  const int count = result.micro_batches;
  const auto ahead = batches_ahead(input, rank, step.stage(), count, kManySteps);
  for (int number = first; number <= 2; ++number) {
    rank.begin_step();
    step.train(make_batches(rank.ctx, input, step.stage(), count), number, 1e-3f, 1);
  }
  rank.take_step_into(result);
  if (meeting) meet(rank, *meeting, input.meeting->fragments);
  if (input.recomputed_steps > 0) recompute_states(input, rank, step, count);
  rank.take_memory_into(input, result);
}

nn::MicroBatch without_targets(nn::MicroBatch batch) {
  nn::Fields fields;
  for (const nn::Field& field : batch.fields) {
    if (field.name != nn::kTargets) fields.set(field.name, field.tensor);
  }
  batch.fields = fields;
  return batch;
}

// Evaluates twice, or predicts twice.
void infer_twice(const DryRunInput& input, Rank& rank, DryRunResult& result) {
  parallel::StageOptions options = input.step.stage;
  options.trains = false;
  options.trained = {};
  const parallel::Stage stage(rank.ctx, rank.grid, input.model, options);
  parallel::PipelineExecutor executor(rank.ctx, stage);
  const auto make = [&] { return make_micro_batch(rank.ctx, input, stage); };
  for (int number = 1; number <= 2; ++number) {
    rank.begin_step();
    if (input.predicts) {
      stage.weights().refresh(rank.ctx);
      const nn::MicroBatch batch = without_targets(make());
      executor.forward({&batch, 1});
    } else {
      parallel::evaluate(executor, result.micro_batches, [&](int /*i*/) { return make(); });
    }
  }
  rank.take_step_into(result);
  rank.take_memory_into(input, result);
}

}  // namespace

DryRunResult run_micro_batches(const DryRunInput& input, int place, int count, int left_out) {
  Rank rank(input, place);
  DryRunResult result;
  result.place = place;
  result.micro_batches = count;
  if (input.trains) {
    train_steps(input, left_out, 1, rank, result);
  } else {
    infer_twice(input, rank, result);
  }
  return result;
}

DryRunResult record_micro_batches(const DryRunInput& input, int place, int count, int left_out) {
  TRIREME_CHECK(input.trains && input.records, "only steps of training are recorded alone");
  Rank rank(input, place);
  DryRunResult result;
  result.place = place;
  result.micro_batches = count;
  // Frozen weights are gathered in the first step alone.
  const int first = input.step.stage.trained.all() ? 2 : 1;
  train_steps(input, left_out, first, rank, result);
  return result;
}

std::size_t gradients_of(const DryRunInput& input, int place) {
  Rank rank(input, place);
  const parallel::StepOptions& step = input.step;
  parallel::Stage stage(rank.ctx, rank.grid, input.model, step.stage);
  // This holds what StateUpdates holds: a proposal for each run, and their sum.
  const int runs = step.work.runs();
  stage.states().hold_proposals(rank.ctx, runs);
  std::optional<parallel::TreeSum> states;
  if (!stage.states().empty() && runs > 1) {
    states.emplace(rank.ctx, stage.states().proposed().shape()[1], runs);
  }
  parallel::GradientReducer reducer(rank.ctx, stage,
                                    {.travel = step.reduce, .to_shard = stage.sharded()}, step.work,
                                    step.runs.blocks);
  reducer.connect();
  return rank.ctx.allocator->stats().peak[static_cast<std::size_t>(MemoryUse::kGradients)];
}

}  // namespace trireme::plan
