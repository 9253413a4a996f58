#include "trireme/parallel/partition.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"

#include "support/message_of.h"

namespace trireme::parallel {
namespace {

double bottleneck(const std::vector<double>& costs, const std::vector<int>& bounds,
                  const std::vector<double>& handed_on = {}) {
  double result = 0;
  for (std::size_t s = 0; s + 1 < bounds.size(); ++s) {
    double sum = 0;
    for (int i = bounds[s]; i < bounds[s + 1]; ++i) sum += costs[static_cast<std::size_t>(i)];
    if (!handed_on.empty() && s + 2 < bounds.size()) {
      sum += handed_on[static_cast<std::size_t>(bounds[s + 1] - 1)];
    }
    result = std::max(result, sum);
  }
  return result;
}

// The cost of the most expensive stage where it is least over all splits, by trying each.
double exhaustive(const std::vector<double>& costs, std::vector<int> bounds, int stages,
                  const std::vector<double>& handed_on = {}) {
  const int blocks = static_cast<int>(costs.size());
  if (stages == 1) {
    bounds.push_back(blocks);
    return bottleneck(costs, bounds, handed_on);
  }
  double best = 1e300;
  const int first = bounds.back();
  for (int end = first + 1; end + stages - 1 <= blocks; ++end) {
    bounds.push_back(end);
    best = std::min(best, exhaustive(costs, bounds, stages - 1, handed_on));
    bounds.pop_back();
  }
  return best;
}

TEST(Partition, EqualBlocksAreSharedEvenlyTheLaterStagesTakeTheRest) {
  EXPECT_EQ(partition_blocks(std::vector<double>(8, 1.0), 4), (std::vector<int>{0, 2, 4, 6, 8}));
  EXPECT_EQ(partition_blocks(std::vector<double>(7, 0.1), 1), (std::vector<int>{0, 7}));
  EXPECT_EQ(partition_blocks(std::vector<double>(7, 1.0), 3), (std::vector<int>{0, 2, 4, 7}));
  EXPECT_EQ(partition_blocks(std::vector<double>(3, 1.0), 3), (std::vector<int>{0, 1, 2, 3}));
}

TEST(Partition, ADearHeadTakesBlocksOffItsStage) {
  // Embedding, six blocks, a head that costs as much as three of them.
  const std::vector<double> costs = {0, 1, 1, 1, 1, 1, 1, 3};
  EXPECT_EQ(partition_blocks(costs, 3), (std::vector<int>{0, 4, 7, 8}));
}

TEST(Partition, StagesBelowTheBottleneckAreBalancedToo) {
  // The last block decides the maximum; the others could lie anyhow.
  EXPECT_EQ(partition_blocks(std::vector<double>{1, 1, 1, 1, 10}, 3),
            (std::vector<int>{0, 2, 4, 5}));
}

TEST(Partition, BlocksThatCostNothingStillGiveEachStageOne) {
  EXPECT_EQ(partition_blocks(std::vector<double>(4, 0.0), 3), (std::vector<int>{0, 1, 2, 4}));
}

TEST(Partition, IsExact) {
  for (std::uint64_t trial = 0; trial < 200; ++trial) {
    const int blocks = 1 + static_cast<int>(trial % 9);
    std::vector<double> costs;
    for (int i = 0; i < blocks; ++i) {
      costs.push_back(std::round(10.0f * philox_uniform_at(trial, static_cast<std::uint64_t>(i))));
    }
    for (int stages = 1; stages <= blocks; ++stages) {
      const std::vector<int> bounds = partition_blocks(costs, stages);
      ASSERT_EQ(bounds.size(), static_cast<std::size_t>(stages) + 1);
      EXPECT_EQ(bounds.front(), 0);
      EXPECT_EQ(bounds.back(), blocks);
      EXPECT_EQ(std::adjacent_find(bounds.begin(), bounds.end(), std::greater_equal<>()),
                bounds.end());
      EXPECT_EQ(bottleneck(costs, bounds), exhaustive(costs, {0}, stages)) << "trial " << trial;
    }
  }
}

TEST(Partition, MoreStagesThanBlocksIsAConfigError) {
  try {
    partition_blocks(std::vector<double>(3, 1.0), 4);
    FAIL() << "accepted";
  } catch (const ConfigError& error) {
    EXPECT_STREQ(error.what(),
                 "more stages than blocks: grid.pipeline is 4, but the model has 3 blocks; "
                 "grid.pipeline can be 1 to 3");
  }
}

TEST(Partition, MorePartsThanBlocksNamesTheChunks) {
  EXPECT_EQ(partition_blocks(std::vector<double>(6, 1.0), 3, 2),
            (std::vector<int>{0, 1, 2, 3, 4, 5, 6}));
  for (const auto& [chunks, message] :
       {std::pair{2,
                  "more parts than blocks: grid.pipeline is 4 and each stage has 2 chunks "
                  "(grid.chunks), but the model has 6 blocks; with 2 chunks grid.pipeline can be 1 "
                  "to 3"},
        std::pair{9,
                  "more parts than blocks: grid.pipeline is 4 and each stage has 9 chunks "
                  "(grid.chunks), but the model has 6 blocks; grid.chunks can be 1 to 6"}}) {
    try {
      partition_blocks(std::vector<double>(6, 1.0), 4, chunks);
      FAIL() << "accepted";
    } catch (const ConfigError& error) {
      EXPECT_STREQ(error.what(), message);
    }
  }
}

// Blocks that hand on as many fp32 numbers as given, and are computed as fast as the others.
nn::ModelPlan model_of(std::initializer_list<std::int64_t> handed_on) {
  nn::ModelPlan plan;
  for (const std::int64_t numbers : handed_on) {
    plan.blocks.push_back({.name = "block", .flops = 1e6, .bytes = 10.0, .build = {}});
    if (numbers == 0) continue;
    plan.blocks.back().boundary = [numbers](std::int64_t batch, std::int64_t length,
                                            const nn::TensorParallel&) {
      return std::vector<nn::BoundaryTensor>{{{batch, numbers}}, {{batch * length}, DType::kI64}};
    };
  }
  return plan;
}

TEST(Partition, ABlockThatMemoryBoundsWeighsMoreThanItsFlops) {
  const nn::BlockPlan dense{.name = "dense", .flops = 1e6, .bytes = 1e4, .build = {}};
  // 3 x 3 of one channel each: two numbers move for 18 FLOPs.
  const nn::BlockPlan depthwise{.name = "depthwise", .flops = 18e3, .bytes = 8e3, .build = {}};
  EXPECT_EQ(cost_of(dense), 1e6);
  EXPECT_EQ(cost_of(depthwise), 8e3 * kFlopsPerByte);
  EXPECT_GT(cost_of(depthwise), depthwise.flops);
  // A block of 400e3 FLOPs before six of these: by FLOPs alone it is dearer than all of them.
  nn::ModelPlan plan{.description = "", .blocks = std::vector(7, depthwise)};
  plan.blocks.front() = {.name = "dense", .flops = 400e3, .build = {}};
  EXPECT_EQ(cut_model(plan, {.stages = 2}), (std::vector<int>{0, 2, 7}));
  for (nn::BlockPlan& block : plan.blocks) block.bytes = 0.0;
  EXPECT_EQ(cut_model(plan, {.stages = 2}), (std::vector<int>{0, 1, 7}));
}

TEST(Partition, ASlowStageGetsFewerBlocks) {
  nn::ModelPlan plan;
  plan.blocks.assign(9, {.name = "block", .flops = 1e6, .build = {}});
  const auto cut = [&](const PipelineLayout& layout, std::vector<double> speeds) {
    return cut_model(plan, layout, {}, speeds);
  };
  EXPECT_EQ(cut({.stages = 2}, {2e9, 1e9}), (std::vector{0, 6, 9}));
  EXPECT_EQ(cut({.stages = 3}, {1e9, 7e9, 1e9}), (std::vector{0, 1, 8, 9}));
  EXPECT_EQ(cut({.stages = 3}, {5e9, 5e9, 5e9}), cut_model(plan, {.stages = 3}));
  // A stage of two chunks is slow in both. What two chunks have is not exact.
  EXPECT_EQ(cut({.stages = 2, .chunks = 2}, {2e9, 1e9}), (std::vector{0, 3, 4, 8, 9}));
}

TEST(Partition, BlocksThatAreGivenMustBeThoseOfTheModel) {
  nn::ModelPlan plan;
  plan.blocks.assign(9, {.name = "block", .flops = 1e6, .build = {}});
  const auto refusal = [&](const PipelineLayout& layout, std::vector<int> cut) {
    return testing::message_of([&] { parts_of_model(plan, layout, cut); });
  };
  EXPECT_EQ(parts_of_model(plan, {.stages = 2}, std::vector{8, 1}), (std::vector{0, 8, 9}));
  EXPECT_EQ(parts_of_model(plan, {.stages = 2}, {}), cut_model(plan, {.stages = 2}));
  // bad input: `train`: `grid.cut` with numbers for other stages than the grid's | grid.cut lists 2
  // numbers, but there are 3 stages: give the blocks of each | 2
  EXPECT_EQ(refusal({.stages = 3}, {8, 1}),
            "grid.cut lists 2 numbers, but there are 3 stages: give the blocks of each");
  EXPECT_EQ(refusal({.stages = 2, .chunks = 2}, {9}),
            "grid.cut lists 1 number, but there are 2 stages of 2 parts each (grid.chunks): give "
            "the blocks of each");
  // bad input: `train`: `grid.cut` with more or fewer blocks than the model's | grid.cut lists 10
  // blocks in all, but the model has 9, of which the first and the last are the embedding and the
  // head | 2
  EXPECT_EQ(refusal({.stages = 2}, {8, 2}),
            "grid.cut lists 10 blocks in all, but the model has 9, of which the first and the last "
            "are the embedding and the head");
}

// A block before all that trains computes its forward alone, one behind it no weight gradient.
TEST(Partition, FrozenBlocksCostLess) {
  nn::ModelPlan plan;
  plan.blocks.assign(6, {.name = "block", .flops = 1.0, .build = {}});
  EXPECT_EQ(cut_model(plan, {.stages = 2}), (std::vector<int>{0, 3, 6}));
  nn::TrainedParameters trained{
      .frozen = NamePatterns({"*"}), .elements = {0, 0, 0, 1, 1, 1}, .frozen_names = {}};
  EXPECT_EQ(cut_model(plan, {.stages = 2}, trained), (std::vector<int>{0, 4, 6}));
  const auto parts = costs_of_parts(plan.blocks, std::vector{0, 4, 6}, 0, trained);
  EXPECT_EQ(parts[0].forward, 4.0);
  EXPECT_EQ(parts[0].backward_input, 1.0);
  EXPECT_EQ(parts[0].backward_weight, 1.0);
  trained.elements = {1, 0, 0, 0, 0, 1};
  EXPECT_EQ(cut_model(plan, {.stages = 2}, trained), (std::vector<int>{0, 3, 6}));
  EXPECT_EQ(costs_of_parts(plan.blocks, std::vector{0, 3, 6}, 0, trained)[0].backward_weight, 1.0);
}

// In the order of the model: a stage's first chunk before its next one.
TEST(Partition, TheFirstBlocksOfEachStageAreRecomputed) {
  using Ends = std::vector<int>;
  const std::vector<int> bounds = {0, 3, 5, 7, 10};
  const PipelineLayout stages{.stages = 4};
  EXPECT_EQ(ends_of_recomputed(bounds, stages, {}, 0), (Ends{3, 5, 7, 10}));
  EXPECT_EQ(ends_of_recomputed(bounds, stages, 1, 0), (Ends{1, 4, 6, 8}));
  EXPECT_EQ(ends_of_recomputed(bounds, stages, 3, 0), (Ends{3, 5, 7, 10}));
  const PipelineLayout loop{.stages = 2, .chunks = 2};
  EXPECT_EQ(ends_of_recomputed(bounds, loop, 2, 0), (Ends{2, 5, 5, 7}));
  EXPECT_EQ(ends_of_recomputed(bounds, loop, 4, 0), (Ends{3, 5, 6, 9}));
  const PipelineLayout v{2, 2, PipelineLayout::Order::kV};
  EXPECT_EQ(ends_of_recomputed(bounds, v, 4, 0), (Ends{3, 5, 7, 8}));
  // Blocks 0 to 3 have no backward.
  EXPECT_EQ(ends_of_recomputed(bounds, stages, 1, 4), (Ends{3, 5, 6, 8}));
  EXPECT_EQ(ends_of_recomputed(bounds, loop, 2, 4), (Ends{3, 5, 7, 8}));
}

// Layers of one unit, an embedding of little and a head of five layers, as in a small GPT. The
// stage that holds the head has as few layers as its other chunk can have.
TEST(Partition, TheChunkBesideTheHeadIsSmall) {
  nn::ModelPlan plan;
  plan.blocks.assign(14, {.name = "block", .flops = 1.0, .build = {}});
  plan.blocks.front().flops = 0.01;
  plan.blocks.back().flops = 5.0;
  const auto bottleneck = [&](const PipelineLayout& layout) {
    const std::vector<int> bounds = cut_model(plan, layout);
    std::vector<double> stages(static_cast<std::size_t>(layout.stages));
    for (int part = 0; part < layout.parts(); ++part) {
      const auto p = static_cast<std::size_t>(part);
      for (int i = bounds[p]; i < bounds[p + 1]; ++i) {
        stages[static_cast<std::size_t>(layout.stage_of(part))] +=
            plan.blocks[static_cast<std::size_t>(i)].flops;
      }
    }
    return *std::ranges::max_element(stages);
  };
  EXPECT_NEAR(bottleneck({4, 2, PipelineLayout::Order::kLoop}), 5 + 1, 1e-9);
  // In a V parts stay alike, since its order of computations is made for such.
  EXPECT_NEAR(bottleneck({4, 2, PipelineLayout::Order::kV}), 5 + 2.01, 1.01);
}

TEST(Partition, CutsWhereLittleIsHandedOn) {
  EXPECT_EQ(cut_model(model_of({1, 1, 1, 0}), {.stages = 2}), (std::vector<int>{0, 2, 4}));
  // 400 bytes a number as FLOPs: 0.4e6, less than a block.
  EXPECT_EQ(cut_model(model_of({1, 1000, 1, 0}), {.stages = 2}), (std::vector<int>{0, 2, 4}));
  EXPECT_EQ(cut_model(model_of({1, 10'000, 1, 0}), {.stages = 2}), (std::vector<int>{0, 1, 4}));
  EXPECT_EQ(cut_model(model_of({9'000, 10'000, 1, 0}), {.stages = 2}), (std::vector<int>{0, 3, 4}));
  // What leaves the last part is not sent.
  EXPECT_EQ(cut_model(model_of({1, 20'000, 20'000, 20'000}), {.stages = 2}),
            (std::vector<int>{0, 1, 4}));
}

TEST(Partition, IsExactWithWhatIsHandedOn) {
  for (std::uint64_t trial = 0; trial < 100; ++trial) {
    const int blocks = 1 + static_cast<int>(trial % 8);
    std::vector<double> costs, handed_on;
    for (int i = 0; i < blocks; ++i) {
      const auto at = static_cast<std::uint64_t>(i);
      costs.push_back(std::round(10.0f * philox_uniform_at(trial, at)));
      handed_on.push_back(std::round(12.0f * philox_uniform_at(trial + 1000, at)));
    }
    for (int stages = 1; stages <= blocks; ++stages) {
      const std::vector<int> bounds = partition_blocks(costs, stages, 1, handed_on);
      EXPECT_EQ(bottleneck(costs, bounds, handed_on), exhaustive(costs, {0}, stages, handed_on))
          << "trial " << trial;
    }
  }
}

TEST(Partition, CostsMustBeFiniteAndNotNegative) {
  EXPECT_THROW(partition_blocks(std::vector<double>{1, -1}, 2), InternalError);
  EXPECT_THROW(partition_blocks(std::vector<double>{1, 1.0 / 0.0}, 2), InternalError);
  EXPECT_THROW(partition_blocks(std::vector<double>{1, 1}, 0), InternalError);
}

}  // namespace
}  // namespace trireme::parallel
