// BERT trained on grids of data replicas, shards, pipeline stages and tensor ranks, compared with
// one rank.
#include <cmath>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/parallel/trainer_step.h"
#include "trireme/plan/dry_run.h"

#include "support/comm_values.h"
#include "support/equality.h"
#include "support/family_grids.h"
#include "support/mpi_test.h"
#include "support/ops_testing.h"
#include "support/small_bert.h"

namespace trireme::testing {
namespace {

constexpr std::int64_t kSamples = 4;
constexpr int kMostTensor = 4;  // as many as heads

// Has as many blocks as four stages of two chunks need.
models::BertConfig grids_bert() {
  models::BertConfig model = small_bert();
  model.layers = 6;
  model.dropout = 0.1;  // its draws depend on the sample alone
  return model;
}

EqualityCase bert_case(const GridShape& grid, DType logits = DType::kF32) {
  models::BertConfig model = grids_bert();
  model.logits = logits;
  EqualityCase test;
  test.grid = grid;
  test.steps = 4;
  test.micro_batches = 5;
  test.other =
      OtherModel{models::bert_plan(model), [](ops::Context& ctx, int number, bool training) {
                   return make_masked_texts(ctx, grids_bert(), number, kSamples, training);
                 }};
  return test;
}

std::vector<EqualityCase> bert_cases() {
  std::vector<EqualityCase> all;
  for (const GridShape& grid : some_grids(kMostTensor)) {
    const EqualityCase plain = bert_case(grid);
    all.push_back(plain);
    const bool splits = grid[Axis::kTensor] > 1;
    if (splits) {
      all.push_back(plain);
      all.back().sequence_parallel = true;
    }
    if (grid[Axis::kPipeline] == 1) continue;
    for (const char* schedule : {"zb-h1", "interleaved", "zb-v"}) {
      if (runtime().size() > 4 && schedule != std::string("zb-h1")) continue;
      all.push_back(plain);
      all.back().schedule = schedule;
      all.back().sequence_parallel = splits;
      if (all.back().schedule == "interleaved") all.back().micro_batches = 4;
    }
  }
  return all;
}

class BertGrids : public ::testing::Test {
 protected:
  const Observed& one_rank(EqualityCase test) {
    test.grid = {1, 1, 1};
    test.schedule = "1f1b";
    test.sequence_parallel = false;
    const auto found = references_.find(test.micro_batches);
    if (found != references_.end()) return found->second;
    return references_.emplace(test.micro_batches, observe(ctx_, alone_, test)).first->second;
  }
  static void expect_alike(const LocalParts& expected, const LocalParts& here,
                           const std::string& what) {
    for (const Deviation& deviation : compare(expected, here, runtime().world())) {
      EXPECT_TRUE(deviation.covered) << deviation.name;
      // A constant added to all scores of a query changes nothing.
      const bool zero = deviation.name.ends_with("attention.key.bias");
      EXPECT_LE(zero ? deviation.absolute : deviation.relative, zero ? 1e-6 : 2e-5)
          << what << " of " << deviation.name;
    }
  }
  static void expect_same(const LocalParts& expected, const LocalParts& here) {
    for (const auto& [name, part] : here) {
      EXPECT_TRUE(same_bits(part.values, expected.at(name).values)) << name;
    }
  }

  ops::Context ctx_ = ops::make_cpu_context(1);
  ProcessGrid alone_{runtime(), {1, 1, 1}, {runtime().rank()}};
  std::map<int, Observed> references_;  // by micro-batches
};

TEST_F(BertGrids, EveryGridFollowsOneRank) {
  for (const EqualityCase& test : bert_cases()) {
    SCOPED_TRACE(test.to_string());
    const Observed& expected = one_rank(test);
    const Observed seen = observe(ctx_, ProcessGrid(runtime(), test.grid), test);
    expect_alike(expected.gradients, seen.gradients, "gradient");
    expect_alike(expected.weights, seen.weights, "weight");
    for (std::size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(seen.losses[i] / expected.losses[i], 1.0, 1e-5) << "step " << i;
    }
    EXPECT_NEAR(seen.evaluation / expected.evaluation, 1.0, 1e-5);
    EXPECT_EQ(seen.padding, 0.0);
  }
}

TEST_F(BertGrids, ShardsHaveTheBitsOfWholeCopies) {
  for (const GridShape& grid : some_grids(kMostTensor)) {
    EqualityCase test = bert_case(grid);
    test.sequence_parallel = grid[Axis::kTensor] > 1;
    expect_bits_of_whole_copies(test);
  }
}

// The gradients of the embedding and of the head, which share a matrix, are kept apart.
TEST_F(BertGrids, EqualRunsGiveTheSameBits) {
  expect_same_bits_on_every_layout(bert_case({1, 1, 1}));
}

// Also with logits in bf16 where that is the type; GPT's tests have both.
TEST_F(BertGrids, TensorRanksFollowIn16Bits) {
  expect_tensor_ranks_to_follow_in_16_bits(bert_case({1, 1, 1}, DType::kBF16));
}

TEST_F(BertGrids, RecomputationHasTheSameBits) {
  if (runtime().size() > 4) GTEST_SKIP() << "few ranks show it";
  for (const GridShape& shape : some_grids(kMostTensor)) {
    EqualityCase test = bert_case(shape);
    test.sequence_parallel = shape[Axis::kTensor] > 1;
    for (const DType compute : {DType::kF32, DType::kBF16}) {
      test.compute = compute;
      test.runs = {};
      const ProcessGrid grid(runtime(), shape);
      const LocalParts expected = GradientObserver(ctx_, grid, test).gradients();
      for (const parallel::RunOptions& runs :
           {parallel::RunOptions{1, parallel::Recompute::kFull},
            parallel::RunOptions{2, parallel::Recompute::kFull},
            parallel::RunOptions{1, parallel::Recompute::kSelective},
            parallel::RunOptions{2, parallel::Recompute::kSelective}}) {
        test.runs = runs;
        SCOPED_TRACE(test.to_string());
        expect_same(expected, GradientObserver(ctx_, grid, test).gradients());
      }
    }
  }
}

TEST_F(BertGrids, DryRunsHoldWhatRealOnesDo) {
  if (runtime().size() > 4) GTEST_SKIP() << "few ranks show it";
  for (const GridShape& shape : some_grids(kMostTensor)) {
    const EqualityCase test = bert_case(shape);
    SCOPED_TRACE(test.to_string());
    plan::DryRunInput input{.model = test.other->plan, .step = {}, .grid = shape};
    input.micro = kSamples;
    input.step.work = parallel::WorkSplit::even(4, shape.extent(kDataAxes));
    input.make_batch = [](ops::Context& to, std::int64_t micro, std::int64_t length,
                          const plan::BatchParts& /*parts*/) {
      return undefined_masked_texts(to, micro, length);
    };
    ops::Context ctx = ops::make_cpu_context(1);
    const ProcessGrid grid(runtime(), shape);
    parallel::TrainerStep step(ctx, grid, input.model, input.step);
    for (int number = 0; number < 2; ++number) {
      std::vector<nn::MicroBatch> mine;
      for (const parallel::Micro& one : input.step.work.of(grid.index(kDataAxes))) {
        mine.push_back(test.other->make_batch(ctx, one.number, true));
      }
      step.train(mine, number + 1, 0.01f, 3);
    }
    const MemoryStats held = ctx.allocator->stats();
    const plan::DryRunResult dry = plan::dry_run(input, runtime().rank());
    for (const MemoryUse use :
         {MemoryUse::kParameters, MemoryUse::kGradients, MemoryUse::kOptimizer}) {
      const auto i = static_cast<std::size_t>(use);
      EXPECT_EQ(dry.memory.live[i], held.live[i]) << name_of(use);
    }
    // When a message between stages leaves its buffer depends on time, and compared with this small
    // model one message is much.
    if (shape[Axis::kPipeline] > 1) continue;
    const auto peak = static_cast<double>(held.total_peak);
    EXPECT_NEAR(static_cast<double>(dry.memory.total_peak), peak, 0.05 * peak);
  }
}

}  // namespace
}  // namespace trireme::testing
