#include "trireme/plan/dry_run.h"

#include <algorithm>
#include <limits>
#include <map>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/nn/vocabulary_sizes.h"
#include "trireme/ops/elementwise.h"

namespace trireme::plan {
namespace {

// In a long step each further run of as many micro-batches as there are stages adds the same. So
// not many more than the pipeline holds at once are run.
constexpr int kMicroBatchesRun = 8;

// Beyond that a dry run would take minutes, and schedules would fill a login node's memory.
constexpr double kMostSeconds = 120.0;

// The micro-batches of a replica, as the trainer makes them. Nobody reads what is in them.
std::vector<nn::MicroBatch> make_micro_batches(ops::Context& ctx, const DryRunInput& input,
                                               int count) {
  const std::int64_t rows = input.micro * input.length;
  std::vector<nn::MicroBatch> batches(static_cast<std::size_t>(count));
  for (nn::MicroBatch& batch : batches) {
    batch.batch = input.micro;
    batch.length = input.length;
    batch.training = true;
    batch.tokens = ctx.allocate({rows}, DType::kI32);
    batch.targets = ctx.allocate({rows}, DType::kI32);
    batch.target_count = rows;
    if (input.masks_documents) batch.first_key = ctx.allocate({rows}, DType::kI32);
    batch.samples = ctx.allocate({input.micro}, DType::kI64);
    batch.loss_sum = ctx.allocate({1}, DType::kF64);
    ops::fill(ctx, batch.loss_sum, 0.0f);
  }
  return batches;
}

// The replicas that stand for all: for each number of micro-batches, the first replica that has it,
// and how many have it. The most micro-batches come first.
std::map<int, std::pair<int, int>, std::greater<>> kinds_of_replicas(const DryRunInput& input) {
  std::map<int, std::pair<int, int>, std::greater<>> kinds;
  const int replicas = input.grid.extent(kDataAxes);
  for (int replica = 0; replica < replicas; ++replica) {
    const auto share = parallel::share_of(input.micro_batches, replicas, replica);
    ++kinds.try_emplace(share.count, replica, 0).first->second.second;
  }
  return kinds;
}

bool hold_the_same(const MemoryStats& a, const MemoryStats& b) {
  return a.total_peak == b.total_peak && a.at_peak == b.at_peak;
}

// Runs two steps of so many micro-batches.
DryRunResult run_steps(const DryRunInput& input, int place, int micro_batches) {
  DryRunResult result;
  result.place = place;
  result.micro_batches = micro_batches;
  const bool on_gpu = input.gpu_memory > 0;
  DryRank rank({.rank = place, .size = input.grid.ranks(), .nccl = on_gpu});
  ops::Context ctx =
      on_gpu ? ops::make_dry_cuda_context(input.gpu_memory) : ops::make_dry_context(input.threads);
  ctx.allocator->reached({.name = "start"});
  const ProcessGrid grid(rank, input.grid);
  parallel::TrainerStep step(ctx, grid, input.model, input.step);
  TRIREME_CHECK(std::ranges::none_of(input.model.blocks, &nn::BlockPlan::collective),
                "a dry run does not know how many empty micro-batches other replicas ask for");
  rank.recorder().watch_phases([&ctx](std::string_view name, std::int64_t number) {
    ctx.allocator->reached({.name = name.empty() ? "step" : name, .number = number});
  });
  step.connect(input.micro, input.length);
  for (int number = 1; number <= 2; ++number) {
    rank.take_traffic();
    *ctx.dry = {};
    ctx.allocator->reached({.name = "step"});
    step.train(make_micro_batches(ctx, input, micro_batches), number, 1e-3f, 1);
  }
  result.memory = ctx.allocator->stats();
  result.traffic = rank.take_traffic();
  result.operations = *ctx.dry;
  return result;
}

// Adds `times` times what `more` has beyond `fewer`.
class Extrapolation {
 public:
  explicit Extrapolation(std::int64_t times) : times_(times) {}

  // Throws OutOfMemoryError where the result is above 8 EiB.
  template <class Number>
  void operator()(Number& more, const Number& fewer) const {
    const double result =
        static_cast<double>(more) +
        static_cast<double>(times_) * (static_cast<double>(more) - static_cast<double>(fewer));
    if (result > static_cast<double>(std::numeric_limits<std::int64_t>::max())) {
      throw OutOfMemoryError("a rank would need more than 8 EiB");
    }
    more += static_cast<Number>(times_) * (more - fewer);  // unsigned numbers wrap and come back
  }
  void operator()(MemoryStats& more, const MemoryStats& fewer) const {
    for (std::size_t use = 0; use < kMemoryUses; ++use) {
      (*this)(more.live[use], fewer.live[use]);
      (*this)(more.peak[use], fewer.peak[use]);
      (*this)(more.at_peak[use], fewer.at_peak[use]);
    }
    (*this)(more.total_live, fewer.total_live);
    (*this)(more.total_peak, fewer.total_peak);
    (*this)(more.reserved, fewer.reserved);
  }

 private:
  std::int64_t times_;
};

// The result for more micro-batches, from those for `fewer` and, one period more, for `more`.
void extrapolate(DryRunResult& more, const DryRunResult& fewer, std::int64_t periods) {
  const Extrapolation by(periods);
  by(more.memory, fewer.memory);
  TRIREME_CHECK(more.traffic.size() == fewer.traffic.size(),
                "what a rank sends depends on the number of micro-batches");
  for (std::size_t i = 0; i < more.traffic.size(); ++i) {
    by(more.traffic[i].calls, fewer.traffic[i].calls);
    by(more.traffic[i].bytes, fewer.traffic[i].bytes);
  }
  ops::OperationCounts counts = more.operations;
  for (const auto& [name, count] : more.operations.by_operation()) {
    const ops::OperationCount& before = fewer.operations.by_operation().at(name);
    const auto times = static_cast<double>(periods);
    counts.add(name, {periods * (count.calls - before.calls), times * (count.flops - before.flops),
                      times * (count.bytes - before.bytes)});
  }
  more.operations = std::move(counts);
}

// Micro-batches that are run of `count`.
int micro_batches_run(int count, int stages) {
  return std::min(count, 2 * stages + kMicroBatchesRun);
}

// About how long the dry runs of all kinds of ranks take, for each of which all stages' schedules
// are made. The factors were measured; only their orders of magnitude matter.
double seconds_of_all(const DryRunInput& input) {
  constexpr double kScheduledStep = 2e-7, kBlock = 2e-5, kSlice = 1e-5;
  const double stages = input.grid[Axis::kPipeline];
  const int replicas = input.grid.extent(kDataAxes);
  const double batches =
      micro_batches_run(parallel::share_of(input.micro_batches, replicas, replicas - 1).count,
                        input.grid[Axis::kPipeline]);
  const double slices = static_cast<double>(input.micro) * static_cast<double>(input.length) /
                        static_cast<double>(nn::loss_slice_rows(
                            {.rows = input.micro * input.length,
                             .classes = input.model.vocabulary / input.grid[Axis::kTensor],
                             .compute = input.step.stage.compute,
                             .gpu_memory = input.gpu_memory}));
  // Two shares of micro-batches, two tensor ranks, two steps, and twice for a long step.
  return 16 * batches *
         (kScheduledStep * stages * stages +
          kBlock * static_cast<double>(input.model.blocks.size()) + kSlice * slices);
}

}  // namespace

DryRunResult dry_run(const DryRunInput& input, int place) {
  const GridShape& grid = input.grid;
  const int replicas = grid.extent(kDataAxes);
  // Replicas that gather weights for each run of blocks run as many micro-batches as the last one,
  // which has the most; those of them that are empty count as full ones here.
  const bool alike = grid[Axis::kShard] > 1 && !input.step.stage.whole_weights;
  const int replica = alike ? replicas - 1 : grid.index(place, kDataAxes);
  const int count = parallel::share_of(input.micro_batches, replicas, replica).count;
  const int period = grid[Axis::kPipeline];
  const int most = micro_batches_run(count, period);
  if (count == most) return run_steps(input, place, count);
  const int periods = (count - most + period - 1) / period;
  DryRunResult result = run_steps(input, place, count - periods * period);
  extrapolate(result, run_steps(input, place, count - (periods + 1) * period), periods);
  result.micro_batches = count;
  return result;
}

std::vector<DryRunResult> dry_run_all(const DryRunInput& input) {
  const GridShape& grid = input.grid;
  if (seconds_of_all(input) > kMostSeconds) {
    throw ConfigError(fmt::format(
        "dry runs of {} stages, {} blocks and micro-batches of {} tokens would take too long: give "
        "fewer stages, a smaller micro-batch or a smaller vocabulary",
        grid[Axis::kPipeline], input.model.blocks.size(), input.micro * input.length));
  }
  const auto kinds = kinds_of_replicas(input);
  const std::vector<int> replicas = grid.group(0, kDataAxes);
  const int tensor = grid[Axis::kTensor], last_tensor = (tensor - 1) * grid.stride(Axis::kTensor);
  std::vector<DryRunResult> results;
  for (const int stage : grid.group(0, Axis::kPipeline)) {
    for (const auto& [count, kind] : kinds) {
      const auto [replica, alike] = kind;
      const int place = replicas[static_cast<std::size_t>(replica)] + stage;
      DryRunResult first = dry_run(input, place);
      first.ranks = alike * tensor;
      if (tensor > 1) {
        DryRunResult last = dry_run(input, place + last_tensor);
        if (!hold_the_same(first.memory, last.memory)) {
          first.ranks -= alike;
          last.ranks = alike;
          results.push_back(std::move(first));
          first = std::move(last);
        }
      }
      results.push_back(std::move(first));
    }
  }
  return results;
}

}  // namespace trireme::plan
