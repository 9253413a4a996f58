// Dry runs of grids that no machine here has: which ranks they tell apart, and steps of so many
// micro-batches that they are not run whole.
#include <algorithm>
#include <memory>
#include <utility>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/parallel/partition.h"
#include "trireme/plan/dry_run.h"

#include "support/dry_run_testing.h"

namespace trireme::testing {
namespace {

using models::GptConfig;
using plan::DryRunInput;
using plan::DryRunResult;

TEST(DryRunAll, TellsKindsOfRanksApart) {
  const GridShape grid(3, 2, 2);
  const auto results = plan::dry_run_all(input_of(small_gpt(), grid, DType::kF32));
  // 8 micro-batches among 3 replicas: two have 3, one has 2.
  ASSERT_EQ(results.size(), 4u);
  EXPECT_EQ(ranks_of(results), 12);
  for (const int stage : {0, 1}) {
    const DryRunResult& more = results[static_cast<std::size_t>(2 * stage)];
    const DryRunResult& fewer = results[static_cast<std::size_t>(2 * stage) + 1];
    EXPECT_EQ(grid.index(more.place, Axis::kPipeline), stage);
    EXPECT_EQ(more.micro_batches, 3);
    EXPECT_EQ(more.ranks, 4);
    EXPECT_EQ(fewer.micro_batches, 2);
    EXPECT_EQ(fewer.ranks, 2);
    EXPECT_GT(more.memory.total_peak, fewer.memory.total_peak);
  }
}

// Stages between the first and the last with as many blocks differ in how many micro-batches they
// keep: one stands for all.
TEST(DryRunAll, TheLargestAreAmongFewerRanks) {
  GptConfig model = small_gpt();
  model.layers = 16;
  for (const char* schedule : {"1f1b", "gpipe"}) {
    DryRunInput input = input_of(model, {3, 8, 2}, DType::kF32);
    input.step.schedule = schedule;
    set_micro_batches(input, 32);
    const auto all = plan::dry_run_all(input), few = plan::dry_run_largest(input);
    EXPECT_LT(few.size(), all.size() / 2);
    const auto most = [](const std::vector<DryRunResult>& results) {
      return std::ranges::max_element(results, {},
                                      [](const auto& result) { return result.memory.total_peak; })
          ->memory.total_peak;
    };
    EXPECT_EQ(most(few), most(all)) << schedule;
    for (const DryRunResult& result : few) EXPECT_EQ(result.micro_batches, 11);
  }
}

// The last stages hold most where weight gradients wait.
TEST(DryRunAll, TheLargestIsFoundWhereWeightGradientsWait) {
  GptConfig model = small_gpt();
  model.layers = 22;
  for (const char* schedule : {"zb-h1", "zb-v", "interleaved"}) {
    for (const auto& runs : {parallel::RunOptions{1, parallel::Recompute::kNone},
                             parallel::RunOptions{1, parallel::Recompute::kFull},
                             parallel::RunOptions{1, parallel::Recompute::kFull, 2}}) {
      DryRunInput input = input_of(model, {1, 6, 1}, DType::kF32);
      input.step.schedule = schedule;
      input.step.runs = runs;
      const auto layout = parallel::schedule_layout(schedule, 6, {});
      input.step.stage.chunks = layout.chunks;
      input.step.stage.order = layout.order;
      set_micro_batches(input, 24);
      std::size_t most = 0, most_of_few = 0;
      for (const auto& result : plan::dry_run_all(input)) {
        most = std::max(most, result.memory.total_peak);
      }
      for (const auto& result : plan::dry_run_largest(input)) {
        most_of_few = std::max(most_of_few, result.memory.total_peak);
      }
      EXPECT_EQ(most_of_few, most) << schedule;
    }
  }
}

// A shortened step has whole runs too (batch.runs).
TEST(DryRunAll, ALongStepOfSeveralRunsIsShortened) {
  for (const auto& [stages, runs] : {std::pair{1, 2}, {1, 16}, {4, 16}, {4, 64}, {3, 4}}) {
    DryRunInput input = input_of(small_gpt(), {1, stages, 1}, DType::kF32);
    set_micro_batches(input, 192, {runs});
    EXPECT_EQ(plan::dry_run(input, 0).micro_batches, 192) << stages << " stages, " << runs;
  }
}

// A block that asks for empty micro-batches, and counts them.
class Asking final : public nn::Block {
 public:
  Asking(std::unique_ptr<nn::Block> inner, int& empty) : inner_(std::move(inner)), empty_(empty) {
    parameters_ = std::move(inner_->parameters());
  }
  nn::Values forward(nn::Tape& tape, const nn::MicroBatch& batch, nn::Values in) const override {
    return inner_->forward(tape, batch, std::move(in));
  }
  void forward_empty(ops::Context& /*ctx*/) const override { ++empty_; }

 private:
  std::unique_ptr<nn::Block> inner_;
  int& empty_;
};

// One of two replicas has one micro-batch fewer of 7 or 1001, in each of two steps. A long step is
// run for two numbers of micro-batches.
TEST(DryRunAll, ReplicasThatTalkRunEmptyMicroBatches) {
  int empty = 0;
  DryRunInput input = input_of(small_gpt(), {2, 1, 1}, DType::kF32);
  nn::BlockPlan& block = input.model.blocks[1];
  block.collective = true;
  block.build = [inner = block.build, &empty](nn::BuildContext& build) {
    return std::make_unique<Asking>(inner(build), empty);
  };
  const auto empty_of = [&](int micro_batches, int place) {
    empty = 0;
    set_micro_batches(input, micro_batches);
    plan::dry_run(input, place);
    return empty;
  };
  EXPECT_EQ(empty_of(7, 0), 2);
  EXPECT_EQ(empty_of(7, 1), 0);
  EXPECT_EQ(empty_of(1001, 0), 4);
}

// A long step is not run whole.
TEST(DryRunAll, ALongStepIsCountedAsIfItWereRun) {
  for (const char* schedule : {"1f1b", "gpipe"}) {
    for (const int pipeline : {1, 2, 3}) {
      DryRunInput input = input_of(small_gpt(), {1, pipeline, 1}, DType::kF32);
      input.step.schedule = schedule;
      const auto with = [&](int micro_batches) {
        set_micro_batches(input, micro_batches);
        return plan::dry_run(input, pipeline - 1);
      };
      const int run = 2 * pipeline + 8;  // whole
      const DryRunResult shorter = with(run - 1), whole = with(run), longer = with(1000);
      const auto grown = [&](double at_shorter, double at_whole) {
        return at_whole + (1000 - run) * (at_whole - at_shorter);
      };
      const auto flops = [](const DryRunResult& result) {
        return result.operations.by_operation().at("matmul").flops;
      };
      EXPECT_EQ(longer.micro_batches, 1000);
      EXPECT_EQ(flops(longer), grown(flops(shorter), flops(whole)));
      // The losses are one block, which is rounded up to a size class.
      const auto peak = [](const DryRunResult& result) {
        return static_cast<double>(result.memory.total_peak);
      };
      EXPECT_NEAR(peak(longer), grown(peak(shorter), peak(whole)), 64.0 * 1000) << schedule;
      for (std::size_t i = 0; i < whole.traffic.size(); ++i) {
        EXPECT_EQ(static_cast<double>(longer.traffic[i].bytes),
                  grown(static_cast<double>(shorter.traffic[i].bytes),
                        static_cast<double>(whole.traffic[i].bytes)));
      }
    }
  }
}

TEST(DryRunAll, WhatNoAddressCanReachIsRefused) {
  GptConfig model = small_gpt();
  model.layers = 512;
  model.width = model.hidden = 1 << 20;
  model.context = 1 << 16;
  DryRunInput input = input_of(model, {1, 1, 1}, DType::kF32);
  input.micro = 1 << 16;
  EXPECT_THROW(plan::dry_run(input, 0), OutOfMemoryError);
  // Nor may what is extrapolated wrap around.
  input.micro = 1;
  model.context = 256;
  input.model = models::gpt_plan(model);
  input.step.schedule = "gpipe";
  set_micro_batches(input, 1 << 24);
  EXPECT_THROW(plan::dry_run(input, 0), OutOfMemoryError);
}

// Nobody has this machine here: the point is that it takes no memory and little time.
TEST(DryRunAll, RunsASeventyBillionModelOnThousandsOfRanks) {
  const GptConfig model{.layers = 80,
                        .width = 8192,
                        .heads = 64,
                        .kv_heads = 8,
                        .hidden = 28672,
                        .vocabulary = 128256,
                        .context = 8192,
                        .norm = nn::NormKind::kRms,
                        .activation = nn::ActivationKind::kSwiglu,
                        .positions = nn::PositionKind::kRotary,
                        .tied = false,
                        .biases = nn::Biases::all(false)};
  DryRunInput input = input_of(model, {64, 8, 8}, DType::kBF16);
  input.micro = 1;
  set_micro_batches(input, 64 * 16);
  const auto results = plan::dry_run_all(input);
  EXPECT_EQ(ranks_of(results), 4096);
  double parameters = 0.0;
  for (const DryRunResult& result : results) {
    const auto bytes =
        static_cast<double>(result.memory.live[static_cast<std::size_t>(MemoryUse::kOptimizer)]);
    parameters += result.ranks / 64 * bytes / 8;  // two fp32 averages
  }
  EXPECT_NEAR(parameters, static_cast<double>(input.model.parameters), 0.001 * parameters);
}

}  // namespace
}  // namespace trireme::testing
