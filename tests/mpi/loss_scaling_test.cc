// fp16 with dynamic loss scaling, on grids: overflow anywhere skips the step everywhere.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/ops/softmax_loss.h"
#include "trireme/parallel/trainer_step.h"

#include "models/gpt/gpt.h"
#include "support/batches.h"
#include "support/mpi_test.h"

namespace trireme::testing {
namespace {

constexpr int kMicroBatches = 4;

parallel::StepOptions options_of(DType compute, const ops::LossScaling& scaling) {
  parallel::StepOptions options;
  options.stage.compute = compute;
  options.stage.seed = 11;
  options.clip = 1.0f;
  options.loss_scaling = scaling;
  return options;
}

class Training {
 public:
  Training(const GridShape& shape, DType compute, const ops::LossScaling& scaling,
           int steps_before = 0)
      : grid_(runtime(), shape),
        step_(ctx_, grid_, models::gpt_plan(models::gpt_preset("test-gpt")),
              options_of(compute, scaling)),
        number_(steps_before) {}

  parallel::StepResult train(bool with_targets = true) {
    const auto work = parallel::WorkSplit::even(kMicroBatches, grid_.extent(kDataAxes));
    const int replica = grid_.index(kDataAxes);
    ++number_;
    std::vector<nn::MicroBatch> batches =
        make_batches(ctx_, BatchShape(), number_ * kMicroBatches + work.micro(replica, 0).number,
                     work.count(replica), true);
    for (nn::MicroBatch& batch : batches) {
      if (with_targets) break;
      std::ranges::fill(batch.field(nn::kTargets).span<std::int32_t>(), ops::kMaskedTarget);
      batch.target_count = 0;
    }
    return step_.train(batches, number_, 1e-3f, 7);
  }

  // Everything that a step may change, but the scale.
  std::vector<char> bytes() const {
    std::vector<char> all;
    const auto add = [&](const Tensor& x) {
      const auto* from = static_cast<const char*>(x.raw());
      all.insert(all.end(), from, from + x.bytes());
    };
    for (std::size_t i = 0; i < step_.stage().groups().size(); ++i) {
      add(step_.stage().groups()[i]->master());
      add(step_.stage().groups()[i]->weights());
      for (const optim::Optimizer::Piece& piece : step_.optimizer().pieces(i)) {
        for (const auto& [name, state] : piece.states) add(state);
      }
    }
    return all;
  }

  ops::Context& context() { return ctx_; }
  parallel::Stage& stage() { return step_.stage(); }

 private:
  ops::Context ctx_ = ops::make_cpu_context(1);
  ProcessGrid grid_;
  parallel::TrainerStep step_;
  int number_;
};

std::vector<GridShape> grids() {
  switch (runtime().size()) {
    case 1:
      return {{1, 1, 1}};
    case 2:
      return {{2, 1, 1}, {1, 2, 1}, {1, 1, 2}};
    default:
      return {{2, 2, 1}, {2, 1, 2}, {1, 2, 2}};
  }
}

// A scale that no fp16 can hold: steps are skipped, and it is halved, until gradients are finite.
TEST(LossScaling, AScaleThatOverflowsIsHalvedUntilItDoesNot) {
  for (const GridShape& grid : grids()) {
    Training training(grid, DType::kF16, {.initial = 0x1p20f, .largest = 0x1p20f});
    const std::vector<char> before = training.bytes();
    double scale = 0x1p20;
    parallel::StepResult result = training.train();
    for (; !result.finite && scale > 1.0; result = training.train()) {
      scale /= 2.0;
      EXPECT_EQ(result.loss_scale, scale);
      EXPECT_TRUE(std::isfinite(result.loss));  // only the way back is scaled
      EXPECT_EQ(training.bytes(), before) << "a step that was skipped changed something";
    }
    EXPECT_TRUE(result.finite) << grid.to_string();
    EXPECT_LT(scale, 0x1p17);  // 2^16 is infinite in fp16
    EXPECT_GT(scale, 0x1p8);
    EXPECT_EQ(result.loss_scale, scale);
    EXPECT_NE(training.bytes(), before);
    const double first = result.loss;
    for (int i = 0; i < 20; ++i) result = training.train();
    EXPECT_TRUE(result.finite);
    EXPECT_LT(result.loss, 0.99 * first) << grid.to_string();
  }
}

// AdamW counts updates: after skipped steps its first one is that of a fresh run, to the bit.
TEST(LossScaling, SkippedStepsDoNotCountForAdamW) {
  for (const GridShape& grid : grids()) {
    Training late(grid, DType::kF16, {.initial = 0x1p20f, .largest = 0x1p20f});
    int skipped = 0;
    parallel::StepResult result = late.train();
    for (; !result.finite && skipped < 20; result = late.train()) ++skipped;
    ASSERT_TRUE(result.finite);
    EXPECT_GE(skipped, 3);
    Training fresh(grid, DType::kF16, {.initial = static_cast<float>(result.loss_scale)}, skipped);
    EXPECT_TRUE(fresh.train().finite);
    EXPECT_EQ(late.bytes(), fresh.bytes()) << grid.to_string() << ", " << skipped << " skipped";
    EXPECT_EQ(ops::read_step_state(late.context()).updates, 1);
  }
}

TEST(LossScaling, AStepWithoutTargetsChangesNothing) {
  for (const GridShape& grid : grids()) {
    for (const DType compute : {DType::kF32, DType::kF16}) {
      Training training(grid, compute, {.initial = 256.0f, .interval = 1});
      EXPECT_TRUE(training.train().finite);
      const std::vector<char> before = training.bytes();
      const ops::StepState state = ops::read_step_state(training.context());
      const parallel::StepResult nothing = training.train(/*with_targets=*/false);
      EXPECT_EQ(nothing.targets, 0);
      EXPECT_TRUE(std::isnan(nothing.loss));
      EXPECT_TRUE(nothing.finite);  // no sign of divergence
      EXPECT_EQ(training.bytes(), before) << grid.to_string();
      EXPECT_EQ(ops::read_step_state(training.context()).updates, state.updates);
      EXPECT_EQ(ops::read_step_state(training.context()).loss_scale, state.loss_scale);
      const parallel::StepResult next = training.train();
      EXPECT_TRUE(next.finite && std::isfinite(next.loss)) << grid.to_string();
      EXPECT_NE(training.bytes(), before);
    }
  }
}

// Weights that overflow on the last rank alone.
TEST(LossScaling, OverflowOnOneRankSkipsTheStepOnAll) {
  for (const GridShape& grid : grids()) {
    Training training(grid, DType::kF16, {.initial = 256.0f});
    EXPECT_TRUE(training.train().finite);
    const std::vector<char> before = training.bytes();
    if (runtime().rank() == runtime().size() - 1) {
      for (const nn::FlatGroup* group : training.stage().groups()) {
        for (Half& weight : group->weights().span<Half>()) weight = Half(60000.0f);
      }
    }
    const parallel::StepResult skipped = training.train();
    EXPECT_FALSE(skipped.finite) << grid.to_string();
    EXPECT_EQ(skipped.loss_scale, 128.0);
    for (const nn::FlatGroup* group : training.stage().groups()) {
      group->refresh_weights(training.context());
    }
    EXPECT_EQ(training.bytes(), before) << grid.to_string();
    const parallel::StepResult next = training.train();
    EXPECT_TRUE(next.finite) << grid.to_string();
    EXPECT_EQ(next.loss_scale, 128.0);
  }
}

TEST(LossScaling, TheScaleGrowsAndAFixedOneStays) {
  Training growing(grids().front(), DType::kF16, {.initial = 64.0f, .interval = 2});
  std::vector<double> scales;
  for (int i = 0; i < 5; ++i) scales.push_back(growing.train().loss_scale);
  EXPECT_EQ(scales, (std::vector<double>{64, 128, 128, 256, 256}));
  Training fixed(grids().front(), DType::kF16, ops::LossScaling::fixed(0x1p20f));
  EXPECT_FALSE(fixed.train().finite);
  EXPECT_EQ(fixed.train().loss_scale, 0x1p20);
}

// The scale cancels, to the bit where nothing underflows: in fp32.
TEST(LossScaling, AScaleChangesNoStepInFp32) {
  for (const GridShape& grid : grids()) {
    Training plain(grid, DType::kF32, ops::LossScaling::fixed(1.0f));
    Training scaled(grid, DType::kF32, ops::LossScaling::fixed(1024.0f));
    for (int i = 0; i < 3; ++i) {
      const parallel::StepResult a = plain.train(), b = scaled.train();
      EXPECT_EQ(a.gradient_norm, b.gradient_norm);
      EXPECT_EQ(a.loss, b.loss);
    }
    EXPECT_EQ(plain.bytes(), scaled.bytes()) << grid.to_string();
  }
}

// Some rows have next to no variance (one in step 16 has), so that their norm's gradient is 200
// times as large as any other: a scale at which those do not overflow.
TEST(LossScaling, Fp16FollowsTheLossOfFp32) {
  for (const GridShape& grid : grids()) {
    Training single(grid, DType::kF32, ops::LossScaling::fixed(1.0f));
    Training half(grid, DType::kF16, {.initial = 64.0f});
    double expected = 0.0, first = 0.0;
    int skipped = 0;
    for (int i = 0; i < 40; ++i) {
      expected = single.train().loss;
      const parallel::StepResult result = half.train();
      skipped += !result.finite;
      EXPECT_NEAR(result.loss, expected, 2e-3 * expected) << grid.to_string() << ", step " << i + 1;
      if (i == 0) first = expected;
    }
    EXPECT_LT(expected, 0.98 * first);
    EXPECT_EQ(skipped, 0) << grid.to_string();
  }
}

}  // namespace
}  // namespace trireme::testing
