#include "trireme/plan/dry_run.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/nn/vocabulary_sizes.h"
#include "trireme/parallel/partition.h"

#include "plan/dry_steps.h"
#include "plan/extrapolate.h"
#include "plan/in_parallel.h"

namespace trireme::plan {
namespace {

// In a long step each further period of micro-batches adds the same. So not many more than the
// pipeline holds at once are run, and two periods fewer still fill it. A V of chunks takes longer
// until its schedule repeats itself.
constexpr int kMicroBatchesRun = 8;
constexpr int kPeriodsRun = 3, kPeriodsOfV = 6;
// Time repeats itself sooner than memory, and all stages are recorded.
constexpr int kMicroBatchesRecorded = 4, kPeriodsRecorded = 2, kPeriodsOfVRecorded = 4;

// Micro-batches of a replica in two waves of an evaluation.
constexpr int kMicroBatchesEvaluated = 16;

// Beyond that a dry run would take minutes, and schedules would fill a login node's memory.
constexpr double kMostSeconds = 120.0;

// A period is as many micro-batches as there are stages, and whole runs (batch.runs). Runs of one
// micro-batch that are reduced one by one may be fewer than in the step
// (GradientReducer::begin_step).
std::int64_t period_of(const DryRunInput& input) {
  const parallel::WorkSplit& work = input.step.work;
  const int runs = work.reduces_each_micro_batch() ? 1 : work.runs();
  return std::lcm(std::int64_t{input.grid[Axis::kPipeline]}, std::int64_t{runs});
}

// Micro-batches that are run of `count`: so many periods, and `more`.
int micro_batches_run(const DryRunInput& input, int count, int periods = kPeriodsRun,
                      int periods_of_v = kPeriodsOfV, int more = kMicroBatchesRun) {
  const bool v = input.step.stage.order == parallel::PipelineLayout::Order::kV;
  const std::int64_t most = (v ? periods_of_v : periods) * period_of(input) + more;
  return static_cast<int>(std::min(std::int64_t{count}, most));
}

// The numbers that stand for `count` micro-batches of a replica where at most `most` are run.
RecordedMicroBatches counts_of(const DryRunInput& input, int count, int most) {
  if (!input.trains || count == most) return {.counts = {count}, .periods = 0};
  const auto period = static_cast<int>(period_of(input));  // less than count
  const int periods = (count - most + period - 1) / period;
  return {.counts = {count - periods * period, count - (periods + 1) * period}, .periods = periods};
}

// The number of micro-batches of a replica.
int micro_batches_of(const DryRunInput& input, int replica) {
  if (!input.trains) return input.predicts ? 1 : kMicroBatchesEvaluated;
  return input.step.work.count(replica);
}

int most_micro_batches(const DryRunInput& input) {
  return input.trains ? input.step.work.most() : micro_batches_of(input, 0);
}

// For each number of micro-batches, the first replica that has it, and how many have it. The most
// micro-batches come first.
using Replicas = std::map<int, std::pair<int, int>, std::greater<>>;

// The replicas that stand for all.
Replicas kinds_of_replicas(const DryRunInput& input) {
  Replicas kinds;
  const int replicas = input.grid.extent(kDataAxes);
  for (int replica = 0; replica < replicas; ++replica) {
    ++kinds.try_emplace(micro_batches_of(input, replica), replica, 0).first->second.second;
  }
  return kinds;
}

bool hold_the_same(const MemoryStats& a, const MemoryStats& b) {
  return a.total_peak == b.total_peak && a.at_peak == b.at_peak;
}

// The rows of a micro-batch that a loss may work through: masked texts have few of them. Of the
// batch one sample is made, since all of them may be more than any memory holds.
std::int64_t rows_with_targets(const DryRunInput& input) {
  ops::Context ctx = ops::make_dry_context(1);
  const nn::HostMicroBatch sample =
      input.make_batch(ctx, 1, input.model.length, {.inputs = false, .targets = true});
  return input.micro * sample.fields.find(nn::kTargets).elements();
}

// The slices of rows that the model's losses work through in a micro-batch.
double slices_of_losses(const DryRunInput& input) {
  const bool sliced = std::ranges::any_of(
      input.model.blocks, [](const nn::BlockPlan& block) { return block.sliced_classes != 0; });
  if (!sliced) return 0.0;
  const std::int64_t rows = rows_with_targets(input);
  double slices = 0.0;
  for (const nn::BlockPlan& block : input.model.blocks) {
    if (block.sliced_classes == 0) continue;
    const std::int64_t each = nn::loss_slice_rows(
        {.rows = rows,
         .classes = nn::vocabulary_rows_in_memory(block.sliced_classes, input.grid[Axis::kTensor]),
         .compute = input.step.stage.compute,
         .gpu_memory = input.device.gpu_memory,
         .logits = nn::type_of_logits(block.logits, input.step.stage.compute)});
    slices += static_cast<double>(rows) / static_cast<double>(each);
  }
  return slices;
}

// About how long dry runs of one rank of each of these stages take for one number of micro-batches;
// for each of them all stages' schedules are made. The factors were measured; only their orders of
// magnitude matter.
double seconds_of(const DryRunInput& input, std::size_t stages) {
  constexpr double kScheduledStep = 2e-7, kBlock = 2e-5, kSlice = 1e-5;
  const double all_stages = input.grid[Axis::kPipeline];
  const double batches = micro_batches_run(input, most_micro_batches(input));
  const double slices = slices_of_losses(input);
  const auto share = static_cast<double>(stages) / all_stages;
  const int steps = input.recomputed_steps > 0 ? 3 : 2;
  // The 4: two tensor ranks, and twice for a long step.
  return 4 * steps * batches *
         (kScheduledStep * static_cast<double>(stages) * all_stages * input.step.stage.chunks +
          kBlock * share * static_cast<double>(input.model.blocks.size()) + kSlice * slices);
}

// Adds the results of the tensor ranks of some stage and replicas. Those between the first and the
// last are like the first.
void add_kinds(const DryRunInput& input, int place, int replicas,
               std::vector<DryRunResult>& results) {
  const int tensor = input.grid[Axis::kTensor];
  DryRunResult first = dry_run(input, place);
  first.ranks = replicas * tensor;
  if (tensor > 1) {
    DryRunResult last = dry_run(input, place + (tensor - 1) * input.grid.stride(Axis::kTensor));
    if (!hold_the_same(first.memory, last.memory)) {
      first.ranks -= replicas;
      last.ranks = replicas;
      results.push_back(std::move(first));
      first = std::move(last);
    }
  }
  results.push_back(std::move(first));
}

// Call it before dry runs of so many stages and kinds of replicas.
void check_seconds(const DryRunInput& input, std::size_t stages, std::size_t kinds) {
  if (static_cast<double>(kinds) * seconds_of(input, stages) <= kMostSeconds) return;
  throw ConfigError(fmt::format(
      "dry runs of {} stages, {} blocks and micro-batches of {} positions would take too long: "
      "give fewer stages, a smaller micro-batch or, for texts, a smaller vocabulary",
      input.grid[Axis::kPipeline], input.model.blocks.size(), input.micro * input.model.length));
}

// Returns what `run` does. Throws ConfigError for the OutOfMemoryError of a dry allocator (this
// machine's has other errors).
template <class Run>
auto within_dry_memory(Run&& run) {
  try {
    return run();
  } catch (const OutOfMemoryError&) {
    throw ConfigError(
        "a rank of this grid would need more than 8 EiB: give a smaller batch.micro or model, or "
        "more tensor ranks or stages");
  }
}

std::vector<DryRunResult> run_kinds(const DryRunInput& input, const std::vector<int>& stages,
                                    const Replicas& kinds) {
  const std::vector<int> replicas = input.grid.group(0, kDataAxes);
  return within_dry_memory([&] {
    check_seconds(input, stages.size(), kinds.size());
    std::vector<DryRunResult> results;
    for (const int stage : stages) {
      for (const auto& [count, kind] : kinds) {
        const auto [replica, alike] = kind;
        add_kinds(input,
                  replicas[static_cast<std::size_t>(replica)] +
                      stage * input.grid.stride(Axis::kPipeline),
                  alike, results);
      }
    }
    return results;
  });
}

// The costs of a stage's blocks and what trains of them, chunk by chunk. Where these are equal,
// stages have equal blocks, but for the first and the last.
std::vector<double> costs_of_stage(const DryRunInput& input, const parallel::PipelineLayout& layout,
                                   const std::vector<int>& bounds, int stage) {
  std::vector<double> result;
  for (int chunk = 0; chunk < layout.chunks; ++chunk) {
    const auto part = static_cast<std::size_t>(layout.part(stage, chunk));
    for (int i = bounds[part]; i < bounds[part + 1]; ++i) {
      const nn::BlockPlan& block = input.model.blocks[static_cast<std::size_t>(i)];
      result.insert(result.end(), {block.flops, block.bytes});
      const nn::TrainedParameters& trained = input.step.stage.trained;
      if (trained.all()) continue;
      result.push_back(static_cast<double>(trained.elements[static_cast<std::size_t>(i)]));
      result.push_back(i < trained.first_block() ? 0.0 : 1.0);
    }
    result.push_back(-1.0);  // ends a chunk
  }
  return result;
}

// The first stage, the last, and some of those between that have equal blocks. In most schedules
// an earlier stage keeps as many micro-batches as a later one, or more. Where weight gradients
// wait, all keep as many, but a later one, or one in the middle of a V, has more of them between
// its two gradients, which hold most.
std::vector<int> stages_that_hold_most(const DryRunInput& input) {
  const int stages = input.grid[Axis::kPipeline];
  const parallel::PipelineLayout layout{stages, input.step.stage.chunks, input.step.stage.order};
  const std::vector<int> bounds =
      parallel::parts_of_model(input.model, layout, input.step.stage.cut, input.step.stage.trained);
  std::map<std::vector<double>, std::vector<int>> alike;
  for (int stage = 1; stage < stages - 1; ++stage) {
    alike[costs_of_stage(input, layout, bounds, stage)].push_back(stage);
  }
  std::set<int> chosen{0, stages - 1};
  const bool weights_wait = input.step.schedule.starts_with("zb-");
  for (const auto& [of, equal] : alike) {
    chosen.insert(equal.front());
    if (weights_wait) chosen.insert({equal[equal.size() / 2], equal.back()});
  }
  return {chosen.begin(), chosen.end()};
}

}  // namespace

DryRunResult dry_run(const DryRunInput& input, int place) {
  const GridShape& grid = input.grid;
  TRIREME_CHECK(!input.trains || input.step.work.replicas() == grid.extent(kDataAxes),
                "the work is split among the replicas of another grid");
  const int count = micro_batches_of(input, grid.index(place, kDataAxes));
  // Where this rank runs fewer than a step has, so do all.
  const auto run = [&](int fewer) { return run_micro_batches(input, place, fewer, count - fewer); };
  const auto [counts, periods] = counts_of(input, count, micro_batches_run(input, count));
  DryRunResult result = run(counts.front());
  if (periods == 0) return result;
  extrapolate(result, run(counts.back()), periods);
  result.micro_batches = count;
  return result;
}

RecordedMicroBatches recorded_micro_batches(const DryRunInput& input) {
  const int count = most_micro_batches(input);
  return counts_of(input, count,
                   micro_batches_run(input, count, kPeriodsRecorded, kPeriodsOfVRecorded,
                                     kMicroBatchesRecorded));
}

std::vector<DryRunResult> record_stages(const DryRunInput& input, int micro_batches) {
  DryRunInput recorded = input;
  recorded.records = true;
  const int left_out = most_micro_batches(input) - micro_batches;
  const int busiest = kinds_of_replicas(input).begin()->second.first;
  const int first = input.grid.group(0, kDataAxes)[static_cast<std::size_t>(busiest)];
  return within_dry_memory([&] {
    const int stride = input.grid.stride(Axis::kPipeline);
    std::vector<DryRunResult> results(static_cast<std::size_t>(input.grid[Axis::kPipeline]));
    in_parallel(results.size(), [&](std::size_t stage) {
      const int place = first + static_cast<int>(stage) * stride;
      results[stage] = record_micro_batches(recorded, place, micro_batches, left_out);
    });
    return results;
  });
}

std::vector<DryRunResult> dry_run_all(const DryRunInput& input) {
  std::vector<int> stages(static_cast<std::size_t>(input.grid[Axis::kPipeline]));
  std::iota(stages.begin(), stages.end(), 0);
  return run_kinds(input, stages, kinds_of_replicas(input));
}

std::size_t most_gradients(const DryRunInput& input) {
  const std::vector<int> stages = stages_that_hold_most(input);
  DryRunInput on_cpu = input;
  on_cpu.device = {};
  return within_dry_memory([&] {
    std::size_t most = 0;
    for (const int stage : stages) {
      most = std::max(most, gradients_of(on_cpu, stage * input.grid.stride(Axis::kPipeline)));
    }
    return most;
  });
}

std::vector<DryRunResult> dry_run_largest(const DryRunInput& input) {
  Replicas kinds = kinds_of_replicas(input);
  kinds.erase(std::next(kinds.begin()), kinds.end());
  return run_kinds(input, stages_that_hold_most(input), kinds);
}

}  // namespace trireme::plan
