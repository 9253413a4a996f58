// The search for the best layout beside forecasts of all layouts, and what it may not choose.
#include "trireme/plan/layout_search.h"

#include <algorithm>
#include <limits>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/parallel/partition.h"
#include "trireme/parallel/schedule.h"

#include "support/dry_run_testing.h"

namespace trireme::testing {
namespace {

using plan::DeviceCosts;
using plan::DeviceDescription;
using plan::DryRunInput;
using plan::Layout;
using plan::LayoutSpace;
using plan::NetworkCosts;
using plan::NetworkDescription;
using plan::PlannedLayout;

constexpr int kSamples = 16;

models::GptConfig model_of_blocks(int layers) {
  models::GptConfig model = small_gpt();
  model.layers = layers;
  return model;
}

// A GPU so slow that what a small model computes takes much longer than to start it.
DeviceDescription slow_gpu() {
  DeviceDescription device;
  device.name = device.title = "slow";
  device.memory = 1e9;
  device.memory_rate = 2e9;
  device.peak = {{DType::kF32, 1e10}, {DType::kBF16, 2e10}};
  device.vector_peak = 1e10;
  device.multiprocessors = 1;
  device.host_rate = 1e9;
  device.launch = device.constants.start = 1e-7;
  device.interval = 0.1;
  return device;
}

NetworkDescription network_of(double rate, int ranks_of_node) {
  NetworkDescription network;
  network.name = "test";
  network.ranks_of_node = ranks_of_node;
  network.nccl = true;
  const DistanceRates near{.latency = 1e-6, .flow = 4 * rate, .host = 4 * rate, .block = 0.0};
  const DistanceRates far{.latency = 2e-6, .flow = rate, .host = rate, .block = rate};
  network.rates.distances = {near, far};
  network.node_links = {.latency = 1e-6, .bytes_per_second = 4 * rate};
  network.constants = {.efficiency = 1.0, .latency = 1.0, .start = 1e-6};
  return network;
}

// One run on such GPUs.
class SmallRun {
 public:
  explicit SmallRun(int layers, double rate = 1e8) : layers_(layers), rate_(rate) {}

  std::optional<DryRunInput> input(const Layout& layout) const {
    DryRunInput input = input_of(model_of_blocks(layers_), layout.grid, DType::kF32);
    input.micro = layout.micro;
    input.device = {.threads = 1, .gpu_memory = std::int64_t{1} << 30, .nccl = true};
    const auto of_schedule = parallel::schedule_layout(
        layout.schedule, layout.grid[Axis::kPipeline],
        layout.schedule == "interleaved" ? std::optional(layout.chunks) : std::nullopt);
    input.step.schedule = layout.schedule;
    input.step.stage.chunks = of_schedule.chunks;
    input.step.stage.order = of_schedule.order;
    input.step.stage.cut = layout.cut;
    input.step.stage.sequence_parallel = layout.sequence_parallel;
    input.step.stage.whole_weights = layout.shard_stage < 3;
    input.step.runs.recompute = layout.recompute == "full"        ? parallel::Recompute::kFull
                                : layout.recompute == "selective" ? parallel::Recompute::kSelective
                                                                  : parallel::Recompute::kNone;
    input.step.runs.recomputed_blocks = layout.recomputed_blocks;
    const int data = layout.grid.extent(kDataAxes);
    if (of_schedule.parts() > static_cast<int>(input.model.blocks.size())) return {};
    set_micro_batches(input, std::max(1, kSamples / layout.micro / data) * data);
    return input;
  }

  plan::LayoutSearchOptions options(double memory = 1e12) const {
    return {.device = &device_,
            .network =
                [rate = rate_](const GridShape& grid) {
                  return std::make_unique<NetworkCosts>(network_of(rate, 2), grid);
                },
            .input = [this](const Layout& layout) { return input(layout); },
            .memory = memory,
            .kept = 8};
  }

  LayoutSpace space() const {
    return {.samples = kSamples,
            .blocks = static_cast<int>(models::gpt_plan(model_of_blocks(layers_)).blocks.size()),
            .most_tensor = 2};
  }

  double seconds(const Layout& layout) const {
    const auto made = input(layout);
    NetworkCosts network(network_of(rate_, 2), layout.grid);
    return forecast_step(*made, device_, network).seconds;
  }
  double bytes(const Layout& layout) const {
    double most = 0.0;
    for (const plan::DryRunResult& result : dry_run_largest(*input(layout))) {
      most = std::max(most, static_cast<double>(result.memory.total_peak));
    }
    return most;
  }

 private:
  int layers_;
  double rate_;
  DeviceCosts device_{slow_gpu()};
};

TEST(Layouts, AreThoseOfTheSpaceAndNoOthers) {
  const LayoutSpace space{.samples = 8, .blocks = 10, .most_tensor = 4};
  const std::vector<Layout> all = plan::layouts_of(space, 8);
  EXPECT_FALSE(all.empty());
  for (const Layout& layout : all) {
    const int data = layout.grid.extent(kDataAxes);
    EXPECT_EQ(layout.grid.ranks(), 8);
    EXPECT_LE(layout.grid[Axis::kTensor], 4);
    EXPECT_EQ(8 % (data * layout.micro), 0);
    EXPECT_TRUE(layout.shard_stage > 0 || layout.grid[Axis::kShard] == 1);
    EXPECT_TRUE(layout.shard_stage < 3 || data > 1);
    EXPECT_LE(layout.grid[Axis::kPipeline] * layout.chunks, 10);
    EXPECT_EQ(std::ranges::count(all, layout), 1);
  }
}

TEST(Layouts, WhatIsGivenIsNotChosen) {
  LayoutSpace space{.samples = 16, .blocks = 10, .most_tensor = 2};
  space.pipeline = 2;
  space.micro = 2;
  space.recompute = "full";
  space.recomputed_blocks = 3;
  space.shard_stage = 1;
  space.schedule = "zb-h1";
  const std::vector<Layout> all = plan::layouts_of(space, 8);
  EXPECT_FALSE(all.empty());
  for (const Layout& layout : all) {
    EXPECT_EQ(layout.grid[Axis::kPipeline], 2);
    EXPECT_EQ(layout.micro, 2);
    EXPECT_EQ(layout.recompute, "full");
    EXPECT_EQ(layout.recomputed_blocks, 3);
    EXPECT_EQ(layout.shard_stage, 1);
    EXPECT_EQ(layout.schedule, "zb-h1");
  }
  space.data = 3;  // 8 ranks have no such grid
  EXPECT_TRUE(plan::layouts_of(space, 8).empty());
}

// The composed costs need only find the best among those that are dry-run whole.
TEST(LayoutSearch, FindsWhatIsFastestOfAll) {
  for (const double rate : {2e7, 1e9}) {
    const SmallRun run(6, rate);
    double fastest = std::numeric_limits<double>::infinity();
    LayoutSpace space = run.space();
    space.recompute = "none";
    space.sequence_parallel = false;
    for (const Layout& layout : plan::layouts_of(space, 4)) {
      fastest = std::min(fastest, run.seconds(layout));
    }
    plan::LayoutSearch search(space, run.options());
    const plan::LayoutsFound found = search.find(4);
    ASSERT_FALSE(found.best.empty());
    EXPECT_LE(found.best.front().step.seconds, 1.03 * fastest) << rate;
    EXPECT_TRUE(std::ranges::is_sorted(found.best, {},
                                       [](const PlannedLayout& one) { return one.step.seconds; }));
  }
}

TEST(LayoutSearch, ChoosesOnlyWhatFits) {
  const SmallRun run(6);
  plan::LayoutSearch roomy(run.space(), run.options());
  const double wanted = roomy.find(4).best.front().bytes();
  double least = wanted;
  for (const Layout& layout : plan::layouts_of(run.space(), 4)) {
    least = std::min(least, run.bytes(layout));
  }
  ASSERT_LT(least, wanted);
  const double memory = (least + wanted) / 2;
  plan::LayoutSearch tight(run.space(), run.options(memory));
  const plan::LayoutsFound found = tight.find(4);
  ASSERT_FALSE(found.best.empty());
  for (const PlannedLayout& one : found.best) EXPECT_LE(one.bytes(), memory);
  EXPECT_GT(found.too_large, 0);

  plan::LayoutSearch hopeless(run.space(), run.options(least / 10));
  const plan::LayoutsFound none = hopeless.find(4);
  EXPECT_TRUE(none.best.empty());
  ASSERT_TRUE(none.smallest.has_value());
  EXPECT_GT(none.smallest->estimated_bytes, least / 10);
}

// The composed bytes decide what is dry-run: they may not be far below what a dry run says.
TEST(LayoutSearch, ComposedCostsAreNearThoseOfDryRuns) {
  const SmallRun run(6);
  LayoutSpace space = run.space();
  plan::LayoutSearchOptions options = run.options();
  options.kept = 24;
  for (const char* schedule : {"1f1b", "zb-h1"}) {
    space.schedule = schedule;
    plan::LayoutSearch search(space, options);
    for (const PlannedLayout& one : search.find(4).best) {
      EXPECT_GT(one.estimated_bytes, 0.7 * one.bytes());
      EXPECT_LT(one.estimated_bytes, 1.6 * one.bytes());
    }
  }
}

// The composed costs of some recomputed blocks lie between those of none and of all, and are as
// near to those of dry runs.
TEST(LayoutSearch, ComposesTheCostsOfSomeRecomputedBlocks) {
  const SmallRun run(14);
  plan::LayoutSearchOptions options = run.options();
  LayoutSpace space = run.space();
  space.micro = 2;
  space.shard_stage = 0;
  space.sequence_parallel = false;
  for (const auto& [schedule, stages] :
       {std::pair("1f1b", 1), {"1f1b", 2}, {"1f1b", 4}, {"zb-h1", 2}}) {
    space.schedule = schedule;
    space.pipeline = stages;
    space.tensor = 1;
    const auto found = [&](const char* recompute, std::optional<int> blocks) {
      space.recompute = recompute;
      space.recomputed_blocks = blocks;
      plan::LayoutSearch search(space, options);
      return search.find(4).best.at(0);
    };
    const PlannedLayout none = found("none", {});
    double bytes = none.estimated_bytes, seconds = none.estimate;
    for (const int blocks : {1, 2, 4, 8, 16}) {
      SCOPED_TRACE(fmt::format("{} {} {}", schedule, stages, blocks));
      const PlannedLayout one = found("full", blocks);
      EXPECT_EQ(one.layout.recomputed_blocks, blocks);
      EXPECT_LE(one.estimated_bytes, bytes);
      EXPECT_GE(one.estimate, seconds);
      EXPECT_GT(one.estimated_bytes, 0.7 * one.bytes());
      EXPECT_LT(one.estimated_bytes, 1.6 * one.bytes());
      bytes = one.estimated_bytes;
      seconds = one.estimate;
    }
    const PlannedLayout all = found("full", {});
    EXPECT_DOUBLE_EQ(bytes, all.estimated_bytes);
    EXPECT_DOUBLE_EQ(seconds, all.estimate);
    // Where weight gradients wait, the one micro-batch that is measured holds the same at last.
    if (space.schedule == "1f1b") {
      EXPECT_LT(bytes, none.estimated_bytes);
    }
  }
}

TEST(StepForecast, AFasterLinkNeverSlowsAStep) {
  for (const Layout& layout : plan::layouts_of(SmallRun(6).space(), 4)) {
    if (layout.recompute != "none" || layout.micro != 2 || layout.sequence_parallel) continue;
    double before = std::numeric_limits<double>::infinity();
    for (const double rate : {1e7, 1e8, 1e9, 1e10}) {
      const double seconds = SmallRun(6, rate).seconds(layout);
      EXPECT_LE(seconds, before * 1.01) << layout.schedule << " " << layout.grid.to_string();
      before = seconds;
    }
  }
}

// With stages that cost the same and messages that cost nothing, the closed forms of the papers: a
// step of M micro-batches on P stages takes M + P - 1 of a stage's work on one, and with v chunks
// M + (P - 1) / v.
TEST(StepForecast, BubblesAreThoseOfClosedForms) {
  constexpr int kLayers = 8, kMicroBatches = 8;
  for (const int stages : {2, 4}) {
    for (const std::string& schedule : parallel::schedule_names()) {
      const int chunks = schedule == "interleaved" || schedule == "zb-v" ? 2 : 1;
      DryRunInput input = input_of(model_of_blocks(kLayers), {1, stages, 1}, DType::kF32);
      const auto layout = parallel::schedule_layout(
          schedule, stages, schedule == "interleaved" ? std::optional(2) : std::nullopt);
      input.step.schedule = schedule;
      input.step.stage.chunks = layout.chunks;
      input.step.stage.order = layout.order;
      // Attention alone costs, so that equal numbers of transformer blocks cost the same.
      const int each = kLayers / (stages * chunks);
      input.step.stage.cut.assign(static_cast<std::size_t>(stages * chunks), each);
      const auto blocks = static_cast<int>(input.model.blocks.size());
      input.step.stage.cut.front() += 1;
      input.step.stage.cut.back() += blocks - kLayers - 1;
      set_micro_batches(input, kMicroBatches);
      const auto recorded = plan::record_stages(input, kMicroBatches);
      std::vector<plan::ReplayedRank> ranks;
      for (const plan::DryRunResult& result : recorded) {
        ranks.push_back({.rank = result.place, .program = &result.program, .lanes = result.lanes});
      }
      plan::ReplayCosts costs;
      costs.compute = [](const ProgramEntry&, const std::string& name) {
        return name == "attention" ? 1.0 : name == "attention_backward" ? 2.0 : 0.0;
      };
      costs.communicate = [](const std::string&, const DryLane&, int, int, std::size_t) {
        return plan::CommunicationCost();
      };
      const double seconds = replay(ranks, costs).seconds;
      const double of_stage = 3.0 * kLayers / stages;
      const double plain = of_stage * (kMicroBatches + stages - 1);
      if (schedule == "gpipe" || schedule == "1f1b") {
        EXPECT_DOUBLE_EQ(seconds, plain) << schedule;
      }
      if (schedule == "interleaved") {
        EXPECT_DOUBLE_EQ(seconds, of_stage * (kMicroBatches + (stages - 1) / 2.0)) << stages;
      }
      // That of V is for input and weight gradients that take as long as forwards.
      if (schedule != "zb-v") {
        EXPECT_LE(seconds, plain) << schedule;
      }
      EXPECT_GE(seconds, of_stage * kMicroBatches) << schedule;
    }
  }
}

TEST(WhyFaster, EqualStepsAreNotToldApart) {
  PlannedLayout one;
  one.step.seconds = 1.0;
  one.step.stages.resize(1);
  PlannedLayout other = one;
  other.step.seconds = 1.0002;
  EXPECT_EQ(why_faster(one, other), "the second is as fast as the first");
  other.step.seconds = 1.25;
  EXPECT_TRUE(why_faster(one, other).starts_with("the first takes 20.0 % less than the second"));
}

}  // namespace
}  // namespace trireme::testing
