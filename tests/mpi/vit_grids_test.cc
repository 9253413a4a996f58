// A vision transformer trained on grids of data replicas, pipeline stages and tensor ranks,
// compared with one rank.
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/plan/dry_run.h"

#include "support/equality.h"
#include "support/family_grids.h"
#include "support/mpi_test.h"
#include "support/small_vit.h"

namespace trireme::testing {
namespace {

constexpr int kMicroBatches = 4, kSteps = 3, kSamples = 8;
constexpr int kMostTensor = 4;  // as many as heads

struct Case {
  GridShape grid;
  std::string schedule = "1f1b";
  parallel::RunOptions runs = {};
  bool sequence_parallel = false;

  std::string to_string() const {
    return fmt::format("{} {}{}, recompute {}", grid.to_string(), schedule,
                       sequence_parallel ? ", sequence parallel" : "",
                       static_cast<int>(runs.recompute));
  }
};

struct Seen {
  LocalParts gradients, weights;  // of the first step; after the last one
  std::vector<double> losses, norms;
  double evaluation = 0.0;
};

parallel::StepOptions options_of(const Case& test) {
  parallel::StepOptions options;
  options.optimizer.rule = {.name = "sgd", .momentum = 0.9f};
  options.schedule = test.schedule;
  options.runs = test.runs;
  options.stage.sequence_parallel = test.sequence_parallel;
  const auto layout = parallel::schedule_layout(test.schedule, test.grid[Axis::kPipeline], {});
  options.stage.chunks = layout.chunks;
  options.stage.order = layout.order;
  options.work = parallel::WorkSplit::even(kMicroBatches, test.grid.extent(kDataAxes));
  return options;
}

models::VitConfig grids_vit() {
  models::VitConfig model = small_vit();
  model.dropout = 0.1;  // its draws depend on the sample alone
  return model;
}

Seen observe(const Case& test) {
  const parallel::StepOptions options = options_of(test);
  PictureTraining training(test.grid, options, models::vit_plan(grids_vit()));

  Seen seen;
  const auto note = [&](LocalParts& parts, auto&& tensor_of) {
    for (const nn::Parameter* parameter : training.stage().parameters()) {
      const auto values = tensor_of(*parameter).template span<float>();
      parts.emplace(parameter->name(),
                    LocalPart{parameter->placement(), {values.begin(), values.end()}});
    }
  };
  std::vector<nn::MicroBatch> mine, held_out;
  for (const parallel::Micro& one : options.work.of(training.grid().index(kDataAxes))) {
    mine.push_back(make_pictures(training.ctx(), one.number, true, kSamples));
    held_out.push_back(make_pictures(training.ctx(), 40 + one.number, false, kSamples));
  }
  training.ctx().step_state->random_key = 7;
  training.step().accumulate(mine);
  note(seen.gradients, [](const nn::Parameter& parameter) { return parameter.gradient(); });
  for (int step = 0; step < kSteps; ++step) {
    const auto result = training.train(step, kMicroBatches, kSamples);
    seen.losses.push_back(result.loss);
    seen.norms.push_back(result.gradient_norm);
  }
  seen.evaluation =
      parallel::evaluate(training.step().executor(), static_cast<int>(held_out.size()), [&](int i) {
        return held_out[static_cast<std::size_t>(i)];
      }).loss_sum;
  note(seen.weights, [](const nn::Parameter& parameter) { return parameter.weight(); });
  return seen;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const GridShape& grid : some_grids(kMostTensor)) {
    const bool splits = grid[Axis::kTensor] > 1;
    all.push_back({.grid = grid});
    if (splits) all.push_back({.grid = grid, .sequence_parallel = true});
    if (grid[Axis::kTensor] == runtime().size()) {
      all.push_back({.grid = grid, .runs = {2, parallel::Recompute::kFull}});
      all.push_back(
          {.grid = grid, .runs = {1, parallel::Recompute::kSelective}, .sequence_parallel = true});
    }
    if (grid[Axis::kPipeline] == 1) continue;
    // Weight gradients that wait, and a forward that is computed again.
    all.push_back({.grid = grid, .schedule = "zb-h1", .sequence_parallel = splits});
    all.push_back({.grid = grid, .runs = {1, parallel::Recompute::kSelective}});
  }
  return all;
}

EqualityCase vit_case(const GridShape& grid) {
  EqualityCase test;
  test.grid = grid;
  test.steps = 4;
  test.micro_batches = 5;
  test.other =
      OtherModel{models::vit_plan(grids_vit()), [](ops::Context& ctx, int number, bool training) {
                   return make_pictures(ctx, number, training, kSamples);
                 }};
  return test;
}

void expect_alike(const LocalParts& here, const LocalParts& expected, const std::string& what) {
  for (const Deviation& deviation : compare(expected, here, runtime().world())) {
    EXPECT_TRUE(deviation.covered) << deviation.name;
    // A constant added to all scores of a query changes nothing.
    const bool zero = deviation.name.ends_with("attention.key.bias");
    EXPECT_LE(zero ? deviation.absolute : deviation.relative, zero ? 1e-6 : 2e-5)
        << what << " of " << deviation.name;
  }
}

TEST(VitGrids, EveryGridFollowsOneRank) {
  const Seen expected = observe({.grid = {1, 1, 1}});
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.to_string());
    const Seen seen = observe(test);
    for (std::size_t i = 0; i < expected.losses.size(); ++i) {
      EXPECT_NEAR(seen.losses[i] / expected.losses[i], 1.0, 1e-5) << "step " << i;
      EXPECT_NEAR(seen.norms[i] / expected.norms[i], 1.0, 1e-5) << "step " << i;
    }
    EXPECT_NEAR(seen.evaluation / expected.evaluation, 1.0, 1e-5);
    expect_alike(seen.gradients, expected.gradients, "gradient");
    expect_alike(seen.weights, expected.weights, "weight");
  }
}

TEST(VitGrids, DryRunsHoldWhatRealOnesDo) {
  if (runtime().size() > 4) GTEST_SKIP() << "few ranks show it";
  for (const Case& test : cases()) {
    SCOPED_TRACE(test.to_string());
    plan::DryRunInput input{
        .model = models::vit_plan(small_vit()), .step = options_of(test), .grid = test.grid};
    input.micro = kSamples;
    input.make_batch = [](ops::Context& to, std::int64_t micro, std::int64_t length,
                          const plan::BatchParts& /*parts*/) {
      return undefined_pictures(to, micro, length);
    };
    PictureTraining training(test.grid, input.step, input.model);
    for (int step = 0; step < 2; ++step) training.train(step, kMicroBatches, kSamples);
    const MemoryStats held = training.ctx().allocator->stats();
    const plan::DryRunResult dry = plan::dry_run(input, runtime().rank());
    for (const MemoryUse use :
         {MemoryUse::kParameters, MemoryUse::kGradients, MemoryUse::kOptimizer}) {
      const auto i = static_cast<std::size_t>(use);
      EXPECT_EQ(dry.memory.live[i], held.live[i]) << name_of(use);
    }
    // When a message between stages leaves its buffer depends on time, and compared with this small
    // model one message is much.
    if (test.grid[Axis::kPipeline] > 1) continue;
    const auto peak = static_cast<double>(held.total_peak);
    EXPECT_NEAR(static_cast<double>(dry.memory.total_peak), peak, 0.05 * peak);
  }
}

TEST(VitGrids, ShardsHaveTheBitsOfWholeCopies) {
  for (const GridShape& grid : some_grids(kMostTensor)) {
    EqualityCase test = vit_case(grid);
    test.sequence_parallel = grid[Axis::kTensor] > 1;
    expect_bits_of_whole_copies(test);
  }
}

TEST(VitGrids, EqualRunsGiveTheSameBits) {
  expect_same_bits_on_every_layout(vit_case({1, 1, 1}));
}

TEST(VitGrids, TensorRanksFollowIn16Bits) {
  expect_tensor_ranks_to_follow_in_16_bits(vit_case({1, 1, 1}));
}

}  // namespace
}  // namespace trireme::testing
