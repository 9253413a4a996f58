// Convolutional networks trained on grids of data replicas and pipeline stages, compared with one
// rank.
#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/parallel/trainer_step.h"

#include "support/equality.h"
#include "support/family_grids.h"
#include "support/mpi_test.h"
#include "support/small_convolutional.h"

namespace trireme::testing {
namespace {

constexpr std::int64_t kSamples = 4;
constexpr int kMicroBatches = 4, kSteps = 3;

// A network, of whose pictures micro-batches are.
struct Network {
  models::ConvolutionalConfig pictures;
  std::function<nn::ModelPlan(bool sync)> plan;
};

Network mobilenet() {
  return {small_mobilenet(), [](bool sync) {
            models::MobileNetV2Config config = small_mobilenet();
            config.sync = sync;
            config.dropout = 0.2;  // its draws depend on the sample alone
            return models::mobilenet_v2_plan(config);
          }};
}

Network resnet(bool bottlenecks) {
  return {small_resnet(bottlenecks), [bottlenecks](bool sync) {
            models::ResNetConfig config = small_resnet(bottlenecks);
            config.sync = sync;
            return models::resnet_plan(config);
          }};
}

struct Case {
  GridShape grid;
  std::string schedule = "1f1b";
  parallel::RunOptions runs = {};
  bool sync = false;  // model.batch_norm
  int steps = kSteps;
};

struct Seen {
  std::vector<double> losses, norms;
  double evaluation = 0.0;
  std::map<std::string, Values> tensors;  // of this rank: weights and states
};

// Each micro-batch is `joined` of the usual ones.
Seen train(const Network& network, ops::Context& ctx, const ProcessGrid& grid, const Case& test,
           int joined = 1) {
  parallel::StepOptions options;
  options.optimizer.rule = {.name = "sgd", .momentum = 0.9f};
  options.schedule = test.schedule;
  options.runs = test.runs;
  options.work = parallel::WorkSplit::even(kMicroBatches / joined, grid.extent(kDataAxes),
                                           {.dealt = test.sync});
  const auto layout = parallel::schedule_layout(test.schedule, test.grid[Axis::kPipeline], {});
  options.stage.chunks = layout.chunks;
  options.stage.order = layout.order;
  parallel::TrainerStep step(ctx, grid, network.plan(test.sync), options);
  const std::vector<parallel::Micro> share = options.work.of(grid.index(kDataAxes));
  const auto batches = [&](int first, bool training) {
    std::vector<nn::MicroBatch> mine;
    for (const parallel::Micro& one : share) {
      mine.push_back(make_picture_batch(ctx, network.pictures, joined * kSamples,
                                        first / joined + one.number, training));
    }
    return mine;
  };
  Seen observed;
  for (int number = 0; number < test.steps; ++number) {
    const auto result = step.train(batches(number * kMicroBatches, true), number + 1, 0.05f, 3);
    observed.losses.push_back(result.loss);
    observed.norms.push_back(result.gradient_norm);
  }
  const auto held_out = batches(40, false);
  observed.evaluation =
      parallel::evaluate(step.executor(), static_cast<int>(share.size()), [&](int i) {
        return held_out[static_cast<std::size_t>(i)];
      }).loss_sum;
  for (const nn::Parameter* parameter : step.stage().parameters()) {
    observed.tensors[parameter->name()] = values_of(parameter->weight());
  }
  for (const nn::State* state : step.stage().states().states()) {
    observed.tensors[state->name()] = values_of(state->value());
  }
  return observed;
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const GridShape& grid : some_grids(1)) {
    const int stages = grid[Axis::kPipeline];
    all.push_back({.grid = grid});
    if (stages == 1) continue;
    // Weight gradients that wait, chunks in a V, and a forward that is computed again.
    all.push_back({.grid = grid, .schedule = "zb-h1"});
    if (runtime().size() > 4) continue;
    if (stages == 2) all.push_back({.grid = grid, .schedule = "zb-v"});
    all.push_back({.grid = grid, .runs = {1, parallel::Recompute::kSelective}});
    all.push_back({.grid = grid, .runs = {2, parallel::Recompute::kFull}});
  }
  return all;
}

// `limit`: largest relative error of a tensor.
void expect_equal(const Seen& observed, const Seen& expected, const GridShape& grid, double limit) {
  for (std::size_t i = 0; i < expected.losses.size(); ++i) {
    EXPECT_NEAR(observed.losses[i] / expected.losses[i], 1.0, limit / 10) << "step " << i;
    EXPECT_NEAR(observed.norms[i] / expected.norms[i], 1.0, limit) << "step " << i;
  }
  EXPECT_NEAR(observed.evaluation / expected.evaluation, 1.0, limit / 10);
  EXPECT_FALSE(observed.tensors.empty());
  for (const auto& [name, values] : observed.tensors) {
    if (name.ends_with("project.norm.bias")) {
      // What all pixels of a channel have in common is gone after the next norm, so its gradient
      // is zero but for rounding.
      for (const double value : values) EXPECT_LT(std::abs(value), 1e-6) << name;
    } else {
      EXPECT_LT(relative_error(values, expected.tensors.at(name)), limit) << name;
    }
  }
  // The stages have all of the model together.
  const auto count = static_cast<double>(observed.tensors.size());
  EXPECT_EQ(runtime().world().all_reduce_host(count, ReduceOp::kSum),
            static_cast<double>(expected.tensors.size()) * grid.extent(kDataAxes));
}

// A number that was rounded otherwise may lie on the other side of where ReLU6 cuts. That shows in
// the bias of a norm, whose gradient adds up few numbers. So few tensors may deviate by more than
// rounding.
void expect_most_equal(const Seen& observed, const Seen& expected) {
  EXPECT_NEAR(observed.losses.at(0) / expected.losses.at(0), 1.0, 1e-5);
  EXPECT_NEAR(observed.evaluation / expected.evaluation, 1.0, 1e-3);
  std::vector<double> errors;
  for (const auto& [name, values] : observed.tensors) {
    if (name.ends_with("project.norm.bias")) continue;  // zero but for rounding
    errors.push_back(relative_error(values, expected.tensors.at(name)));
  }
  std::ranges::sort(errors);
  EXPECT_LT(errors.at(errors.size() / 2), 1e-3);
  EXPECT_LT(errors.back(), 0.1);
}

// After the first step weights differ by how gradients are summed. What ReLU6 makes of that shows
// later.
void follow_one_rank(const Network& network) {
  ops::Context ctx = ops::make_cpu_context(1);
  const ProcessGrid alone(runtime(), {1, 1, 1}, {runtime().rank()});
  for (const int steps : {1, kSteps}) {
    const Seen expected = train(network, ctx, alone, {.grid = {1, 1, 1}, .steps = steps});
    for (Case test : cases()) {
      test.steps = steps;
      SCOPED_TRACE(test.grid.to_string() + " " + test.schedule);
      const ProcessGrid grid(runtime(), test.grid);
      const Seen observed = train(network, ctx, grid, test);
      if (steps == 1 || test.grid.extent(kDataAxes) == 1) {
        expect_equal(observed, expected, test.grid, 1e-4);
      } else {
        expect_most_equal(observed, expected);
      }
    }
  }
}

// model.batch_norm sync: as one rank whose micro-batches have the pictures of all replicas. Moments
// that are merged are rounded otherwise, so one step is compared.
void follow_larger_micro_batches(const Network& network) {
  ops::Context ctx = ops::make_cpu_context(1);
  const ProcessGrid alone(runtime(), {1, 1, 1}, {runtime().rank()});
  for (Case test : cases()) {
    const int replicas = test.grid.extent(kDataAxes);
    if (replicas == 1 || kMicroBatches % replicas != 0) continue;
    SCOPED_TRACE(test.grid.to_string() + " " + test.schedule);
    test.sync = true;
    test.steps = 1;
    const ProcessGrid grid(runtime(), test.grid);
    const Seen one = train(network, ctx, alone, {.grid = {1, 1, 1}, .steps = 1}, replicas);
    expect_most_equal(train(network, ctx, grid, test), one);
  }
}

// What ReLU6 makes of rounding does not show where nothing is rounded otherwise: several steps of
// whatever replicas, stages and shards.
void expect_same_bits(const Network& network) {
  EqualityCase test;
  test.other = OtherModel{network.plan(false), [pictures = network.pictures](
                                                   ops::Context& ctx, int number, bool training) {
                            return make_picture_batch(ctx, pictures, kSamples, number, training);
                          }};
  expect_same_bits_on_every_layout(test);
}

TEST(MobileNetV2Grids, EveryGridFollowsOneRank) {
  if (runtime().size() > 4) GTEST_SKIP() << "few ranks show it";
  follow_one_rank(mobilenet());
}
TEST(MobileNetV2Grids, SyncedNormsFollowOneRankWithLargerMicroBatches) {
  follow_larger_micro_batches(mobilenet());
}
TEST(MobileNetV2Grids, EqualRunsGiveTheSameBits) {
  expect_same_bits(mobilenet());
}
TEST(ResNetGrids, EveryGridFollowsOneRank) {
  if (runtime().size() > 4) GTEST_SKIP() << "few ranks show it";
  follow_one_rank(resnet(false));
}
TEST(ResNetGrids, EveryGridOfBottlenecksFollowsOneRank) {
  if (runtime().size() > 4) GTEST_SKIP() << "few ranks show it";
  follow_one_rank(resnet(true));
}
TEST(ResNetGrids, EqualRunsGiveTheSameBits) {
  expect_same_bits(resnet(runtime().size() != 2));
}
TEST(ResNetGrids, SyncedNormsFollowOneRankWithLargerMicroBatches) {
  if (runtime().size() > 4) GTEST_SKIP() << "few ranks show it";
  follow_larger_micro_batches(resnet(true));
}

}  // namespace
}  // namespace trireme::testing
