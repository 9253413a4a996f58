// The layers of models on pictures: gradients of a small network against central differences of its
// loss, and its running statistics.
#include "trireme/nn/pictures.h"

#include <algorithm>
#include <cmath>

#include <gtest/gtest.h>

#include "trireme/ops/softmax_loss.h"

#include "support/mpi_test.h"
#include "support/picture_model.h"

namespace trireme::testing {
namespace {

bool alone() {
  return runtime().size() == 1;
}

// Each replica evaluates its share of three micro-batches; the last two samples of all are padding.
// One of four replicas has nothing to evaluate, and does not know that others count.
TEST(Pictures, AnEvaluationCountsCorrectAnswersOfAllReplicas) {
  constexpr int kBatches = 3, kPadding = 2;
  constexpr std::int64_t kTargets = kBatches * kPicturesOfMicroBatch - kPadding;
  const auto batch = [](ops::Context& ctx, int i) {
    nn::MicroBatch made = make_pictures(ctx, i, false);
    if (i + 1 < kBatches) return made;
    std::ranges::fill(made.field(nn::kTargets).span<std::int32_t>().last(kPadding),
                      ops::kMaskedTarget);
    made.target_count -= kPadding;
    return made;
  };
  const auto sums = [&](const GridShape& shape) {
    PictureTraining model(shape);
    const auto work = parallel::WorkSplit::even(kBatches, model.grid().extent(kDataAxes));
    const int replica = model.grid().index(kDataAxes);
    return parallel::evaluate(model.step().executor(), work.count(replica), [&](int i) {
      return batch(model.ctx(), work.micro(replica, i).number);
    });
  };
  const nn::EvaluationSums one = sums({1, 1, 1});
  ASSERT_TRUE(one.correct);
  EXPECT_EQ(one.targets, kTargets);
  EXPECT_EQ(one.correct->top5, kTargets);  // of five classes
  EXPECT_GT(one.correct->top1, 0);
  EXPECT_LT(one.correct->top1, kTargets);
  EXPECT_EQ(one.share(kTargets), 1.0);
  EXPECT_EQ(one.mean_loss(), one.loss_sum / static_cast<double>(kTargets));
  const int ranks = runtime().size();
  for (const GridShape& shape : {GridShape{ranks, 1, 1}, GridShape{1, ranks, 1}}) {
    const nn::EvaluationSums together = sums(shape);
    EXPECT_EQ(together.correct, one.correct) << shape.to_string();
    EXPECT_EQ(together.targets, one.targets) << shape.to_string();
    EXPECT_EQ(together.loss_sum, one.loss_sum) << shape.to_string();
  }
  // Without counters nothing is counted.
  PictureTraining model({1, 1, 1});
  EXPECT_FALSE(parallel::evaluate(model.step().executor(), 2, [&](int i) {
                 nn::MicroBatch made = batch(model.ctx(), i);
                 made.correct = Tensor();
                 return made;
               }).correct);
}

TEST(Pictures, GradientsEqualCentralDifferences) {
  if (!alone()) GTEST_SKIP() << "for one rank";
  for (const bool training : {true, false}) {
    PictureTraining model({1, 1, 1});
    const auto batches = [&] {
      std::vector<nn::MicroBatch> two;
      for (int i = 0; i < 2; ++i) two.push_back(make_pictures(model.ctx(), i, training));
      return two;
    };
    const auto loss = [&] {
      return model.step().accumulate(batches()).loss * 2 * kPicturesOfMicroBatch;
    };
    loss();
    for (const nn::Parameter* parameter : model.stage().parameters()) {
      loss();
      const auto span = parameter->gradient().span<float>();
      const std::vector<float> gradient(span.begin(), span.end());
      const auto weights = parameter->weight().span<float>();
      const std::vector<float> saved(weights.begin(), weights.end());
      double squares = 0.0;
      for (const float g : gradient) squares += double{g} * double{g};
      ASSERT_GT(squares, 0.0) << parameter->name();
      const double length = std::sqrt(squares), epsilon = 1e-3;
      const auto at = [&](double distance) {
        for (std::size_t i = 0; i < saved.size(); ++i) {
          weights[i] = saved[i] + static_cast<float>(distance * double{gradient[i]} / length);
        }
        return loss();
      };
      const double slope = (at(epsilon) - at(-epsilon)) / (2 * epsilon);
      std::copy(saved.begin(), saved.end(), weights.begin());
      // With running moments activations are small, so more of them are near where they are cut.
      EXPECT_NEAR(slope / length, 1.0, training ? 0.03 : 0.1)
          << parameter->name() << ", gradient norm " << length << ", training " << training;
    }
  }
}

// The running moments of the first batch norm after two steps, in double, one micro-batch after the
// other.
TEST(Pictures, RunningMomentsAreThoseOfOneMicroBatchAfterTheOther) {
  PictureTraining model({runtime().size(), 1, 1});
  ops::Context& ctx = model.ctx();
  Values mean(16, 0.0), variance(16, 1.0);
  for (int step = 0; step < 2; ++step) {
    const nn::Parameter* weight = model.stage().parameters().front();
    ASSERT_EQ(weight->name(), "stem.convolution.weight");
    for (int m = 0; m < 4; ++m) {
      const ops::ConvolutionShape shape{
          kPicturesOfMicroBatch, kPictureSize, kPictureSize, 3, 16, 3, 3, 2, 1, 1};
      const Tensor y = ctx.allocate(shape.output(), DType::kF32);
      const nn::MicroBatch batch = make_pictures(ctx, 4 * step + m, true);
      ops::convolution(ctx, shape, pictures_of(ctx, batch, DType::kF32), weight->weight(), {}, y);
      const Values values = values_of(y);
      const auto rows = static_cast<double>(values.size() / 16);
      for (std::size_t c = 0; c < 16; ++c) {
        double sum = 0.0, squares = 0.0;
        for (std::size_t i = c; i < values.size(); i += 16) sum += values[i] / rows;
        for (std::size_t i = c; i < values.size(); i += 16) {
          squares += (values[i] - sum) * (values[i] - sum);
        }
        mean[c] = 0.9 * mean[c] + 0.1 * sum;
        variance[c] = 0.9 * variance[c] + 0.1 * squares / (rows - 1.0);
      }
    }
    model.train(step);
  }
  Values expected = mean;
  expected.insert(expected.end(), variance.begin(), variance.end());
  EXPECT_LT(relative_error(model.states().at("stem.norm.running"), expected), 1e-5);
}

TEST(Pictures, RecomputationProposesOnceAndChangesNoBit) {
  std::string bits;
  for (const auto recompute :
       {parallel::Recompute::kNone, parallel::Recompute::kSelective, parallel::Recompute::kFull}) {
    parallel::StepOptions options;
    options.runs.recompute = recompute;
    PictureTraining model({runtime().size(), 1, 1}, options);
    std::string now;
    for (int step = 0; step < 2; ++step) {
      const double loss = model.train(step).loss;
      now.append(reinterpret_cast<const char*>(&loss), sizeof(loss));
    }
    now += model.bits();
    EXPECT_EQ(model.among_five(),
              kPicturesOfMicroBatch * 4 / runtime().size());  // there are five classes
    if (!bits.empty()) {
      EXPECT_TRUE(now == bits);
    }
    bits = now;
  }
}

TEST(Pictures, EvaluationUsesTheRunningMomentsAndProposesNothing) {
  PictureTraining model({runtime().size(), 1, 1});
  model.train(0);
  const auto before = model.states();
  const double loss = model.evaluate();
  EXPECT_EQ(model.evaluate(), loss);
  EXPECT_EQ(model.states(), before);
  // A step after it is that of a model that was not evaluated.
  PictureTraining other({runtime().size(), 1, 1});
  other.train(0);
  model.train(1);
  other.train(1);
  EXPECT_EQ(model.states(), other.states());
  EXPECT_NE(model.evaluate(), loss);
}

}  // namespace
}  // namespace trireme::testing
