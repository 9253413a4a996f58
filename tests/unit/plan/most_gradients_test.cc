// How much memory the gradients of a step take at most.
#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/parallel/partition.h"
#include "trireme/plan/dry_run.h"

#include "support/dry_run_testing.h"

namespace trireme::testing {
namespace {

using plan::DryRunInput;
using plan::DryRunResult;

// Where each micro-batch is a run and whole gradients do not stay, a further layer costs its shard
// for each partial sum that waits. Only the whole gradients of a few blocks are there.
TEST(DryRunAll, WholeGradientsAreThoseOfAFewBlocks) {
  constexpr int kReplicas = 4;
  GridShape grid{1, 1, 1};
  grid[Axis::kShard] = kReplicas;
  const auto peak = [&](int layers, int micro_batches, bool whole, DType travel) {
    models::GptConfig model = small_gpt();
    model.layers = layers;
    DryRunInput input = input_of(model, grid, DType::kF32);
    input.step.reduce = travel;
    input.step.stage.whole_gradients = whole;
    set_micro_batches(input, micro_batches, {micro_batches, true});
    const MemoryStats memory = plan::dry_run(input, 0).memory;
    return static_cast<double>(memory.peak[static_cast<std::size_t>(MemoryUse::kGradients)]);
  };
  for (const DType travel : {DType::kF32, DType::kBF16}) {
    const double of_layer = (peak(9, 4, true, travel) - peak(8, 4, true, travel)) / kReplicas;
    const double shard = of_layer / (travel == DType::kBF16 ? 1.5 : 1.0);
    for (const auto& [micro_batches, shards] : {std::pair{4, 1}, {8, 1}, {16, 2}, {256, 6}}) {
      const double more =
          peak(9, micro_batches, false, travel) - peak(8, micro_batches, false, travel);
      EXPECT_NEAR(more / shard, shards, 0.05 * shards) << micro_batches;
    }
  }
}

// Each micro-batch is reduced to shards.
DryRunInput sharded_input(const char* schedule, int stages, bool tied, int blocks_at_once) {
  GridShape grid{1, stages, 1};
  grid[Axis::kShard] = 2;
  models::GptConfig model = small_gpt();
  model.layers = 10;
  model.tied = tied;
  DryRunInput input = input_of(model, grid, DType::kF32);
  input.step.schedule = schedule;
  const auto layout = parallel::schedule_layout(schedule, stages, {});
  input.step.stage.chunks = layout.chunks;
  input.step.stage.order = layout.order;
  input.step.stage.whole_gradients = false;
  input.step.stage.separates_uses = true;
  set_micro_batches(input, 16, {16, true});
  input.step.runs = {blocks_at_once, parallel::Recompute::kFull};
  return input;
}

std::size_t peak_of_gradients(const std::vector<DryRunResult>& results) {
  std::size_t most = 0;
  for (const DryRunResult& result : results) {
    most = std::max(most, result.memory.peak[static_cast<std::size_t>(MemoryUse::kGradients)]);
  }
  return most;
}

// They are known, so that libraries need not register memory in the first step, and the default of
// batch.runs knows what a step holds. On CPUs a run connects nothing beforehand.
TEST(MostGradients, AreWhatAStepTakes) {
  for (const char* schedule : {"1f1b", "interleaved", "zb-h1", "zb-v"}) {
    for (const int blocks : {1, 2, 3}) {
      for (const bool tied : {false, true}) {
        for (const int stages : {1, 2}) {
          if (stages == 1 && std::string(schedule) != "1f1b") continue;
          const DryRunInput input = sharded_input(schedule, stages, tied, blocks);
          EXPECT_EQ(plan::most_gradients(input), peak_of_gradients(plan::dry_run_largest(input)))
              << schedule << ", " << blocks << " blocks at once, " << (tied ? "tied, " : "")
              << stages << " stages";
        }
      }
    }
  }
}

TEST(MostGradients, HaveTheStatesOfConvolutionalNetworks) {
  DryRunInput input = input_of_pictures(true);
  input.grid[Axis::kShard] = 2;
  for (const int runs : {2, 16}) {
    set_micro_batches(input, 16, {runs, true});
    input.step.stage.whole_gradients = runs == 2;
    input.step.stage.separates_uses = true;
    EXPECT_EQ(plan::most_gradients(input), peak_of_gradients(plan::dry_run_largest(input))) << runs;
  }
}

// A GPU's memory for gradients is there before the first step.
TEST(MostGradients, AreTakenBeforeTheFirstStepOnAGpu) {
  for (const int blocks : {1, 3}) {
    DryRunInput input = sharded_input("1f1b", 1, true, blocks);
    const std::size_t before = plan::most_gradients(input);
    input.device = {.gpu_memory = std::int64_t{80} << 30, .nccl = true};
    EXPECT_EQ(peak_of_gradients(plan::dry_run_largest(input)), before) << blocks;
  }
}

}  // namespace
}  // namespace trireme::testing
