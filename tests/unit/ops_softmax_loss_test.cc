#include <cmath>
#include <limits>

#include "trireme/ops/softmax_loss.h"

#include "support/ops_reference.h"

namespace trireme {
namespace {

using testing::Values;

// dtype() is that of the gradient; logits are fp32.
class SoftmaxLoss : public testing::OpsTest {
 protected:
  struct Statistics {
    Tensor row_max, row_sum, target_logit;
  };
  Statistics statistics(const Tensor& x, std::int64_t first_class, std::int64_t valid) {
    const std::int64_t rows = x.shape()[0];
    Statistics s = {testing::make_output(ctx, {rows}, DType::kF32),
                    testing::make_output(ctx, {rows}, DType::kF32),
                    testing::make_output(ctx, {rows}, DType::kF32)};
    ops::softmax_statistics(ctx, x, targets_t, first_class, valid, s.row_max, s.row_sum,
                            s.target_logit);
    return s;
  }
  double loss_sum(const Tensor& of_targets, const Statistics& s) {
    const Tensor sum = testing::make_zeros(ctx, {1}, DType::kF64);
    ops::softmax_loss_sum(ctx, of_targets, s.row_max, s.row_sum, s.target_logit, sum);
    return sum.data<double>()[0];
  }
  Tensor logits_of(const Values& values, std::int64_t classes) {
    return testing::make_tensor(
        ctx, values, {static_cast<std::int64_t>(values.size()) / classes, classes}, DType::kF32);
  }

  static constexpr std::int64_t kRows = 6, kClasses = 37, kValid = 33;
  const std::vector<std::int32_t> targets = {0, 32, ops::kMaskedTarget, 7, 7, 20};
  const Tensor targets_t = testing::make_tensor(ctx, targets);
  const Values logits =
      testing::rounded(testing::random_values(1, kRows* kClasses, 4.0), DType::kF32);
};

TEST_P(SoftmaxLoss, LossOfTheWholeVocabulary) {
  const Statistics s = statistics(logits_of(logits, kClasses), 0, kValid);
  const double loss = loss_sum(targets_t, s);
  const double expected = testing::reference::cross_entropy(logits, targets, kClasses, kValid);
  EXPECT_NEAR(loss, expected, 1e-6 * expected);
}

TEST_P(SoftmaxLoss, GradientOfTheLoss) {
  const Tensor logits_t = logits_of(logits, kClasses);
  const Statistics s = statistics(logits_t, 0, kValid);
  const Tensor dlogits = output({kRows, kClasses});
  ops::softmax_gradient(ctx, logits_t, targets_t, 0, kValid, s.row_max, s.row_sum, dlogits);
  const Values expected = testing::finite_differences(
      [&](const Values& x) {
        return testing::reference::cross_entropy(x, targets, kClasses, kValid);
      },
      logits);
  testing::expect_close(dlogits, expected, testing::tolerance("softmax", dtype()), "dlogits");
  const Values values = testing::values_of(dlogits);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const bool padding = i % kClasses >= kValid;
    if (padding || targets[i / kClasses] == ops::kMaskedTarget) {
      EXPECT_EQ(values[i], 0.0) << i;
    }
  }
  if (dtype() == DType::kF32) {
    ops::softmax_gradient(ctx, logits_t, targets_t, 0, kValid, s.row_max, s.row_sum, logits_t);
    EXPECT_EQ(testing::bits_of(logits_t), testing::bits_of(dlogits));
  }
}

// Two ranks hold classes [0, 20) and [20, 33), each with padding; the target 20 is where the first
// has its padding.
TEST_P(SoftmaxLoss, TwoPartsMakeTheWhole) {
  constexpr std::int64_t kCut = 20, kFirst = kCut + 3, kSecond = kClasses - kCut;
  Values left, right;
  for (std::size_t i = 0; i < logits.size(); ++i) {
    (i % kClasses < kCut ? left : right).push_back(logits[i]);
    if (i % kClasses == kCut - 1) left.insert(left.end(), kFirst - kCut, 50.0);
  }
  const Tensor left_t = logits_of(left, kFirst), right_t = logits_of(right, kSecond);
  const Statistics a = statistics(left_t, 0, kCut), b = statistics(right_t, kCut, kValid - kCut);
  const Tensor tops = testing::make_zeros(ctx, {kRows}, DType::kF32);
  for (std::int64_t r = 0; r < kRows; ++r) {  // as the ranks would combine them
    const float top = std::max(a.row_max.data<float>()[r], b.row_max.data<float>()[r]);
    tops.data<float>()[r] = top;
    a.target_logit.data<float>()[r] += b.target_logit.data<float>()[r];
  }
  ops::softmax_rescale(ctx, a.row_max, tops, a.row_sum);
  ops::softmax_rescale(ctx, b.row_max, tops, b.row_sum);
  for (std::int64_t r = 0; r < kRows; ++r) {
    a.row_sum.data<float>()[r] += b.row_sum.data<float>()[r];
    a.row_max.data<float>()[r] = tops.data<float>()[r];
  }
  const double loss = loss_sum(targets_t, a);
  const double expected = testing::reference::cross_entropy(logits, targets, kClasses, kValid);
  EXPECT_NEAR(loss, expected, 1e-6 * expected);
  const Tensor whole = output({kRows, kClasses}), part = output({kRows, kSecond});
  const Tensor first_part = output({kRows, kFirst});
  ops::softmax_gradient(ctx, left_t, targets_t, 0, kCut, a.row_max, a.row_sum, first_part);
  ops::softmax_gradient(ctx, logits_of(logits, kClasses), targets_t, 0, kValid, a.row_max,
                        a.row_sum, whole);
  ops::softmax_gradient(ctx, right_t, targets_t, kCut, kValid - kCut, a.row_max, a.row_sum, part);
  const Values all = testing::values_of(whole), some = testing::values_of(part);
  const Values before = testing::values_of(first_part);
  for (std::size_t r = 0; r < kRows; ++r) {
    for (std::size_t c = 0; c < kFirst; ++c) {
      EXPECT_NEAR(before[r * kFirst + c], c < kCut ? all[r * kClasses + c] : 0.0, 1e-6);
    }
    for (std::size_t c = 0; c < kSecond; ++c) {
      EXPECT_NEAR(some[r * kSecond + c], all[r * kClasses + kCut + c], 1e-6);
    }
  }
}

// A rank without a part of the vocabulary adds nothing to the whole.
TEST_P(SoftmaxLoss, AnEmptyPartAddsNothing) {
  const Tensor whole = logits_of(logits, kClasses);
  const Statistics all = statistics(whole, 0, kValid), none = statistics(whole, kValid, 0);
  for (std::int64_t r = 0; r < kRows; ++r) {
    EXPECT_EQ(none.row_max.data<float>()[r], -std::numeric_limits<float>::infinity());
    EXPECT_EQ(none.target_logit.data<float>()[r], 0.0f);
  }
  ops::softmax_rescale(ctx, none.row_max, all.row_max, none.row_sum);
  for (std::int64_t r = 0; r < kRows; ++r) EXPECT_EQ(none.row_sum.data<float>()[r], 0.0f);
}

TEST_P(SoftmaxLoss, LargeLogitsStayFiniteAndNotANumberShows) {
  Values x = logits;
  for (std::size_t i = 0; i < kClasses; ++i) x[i] = 3e38 - static_cast<double>(i) * 1e36;
  x[4 * kClasses + 2] = std::numeric_limits<double>::quiet_NaN();
  x[5 * kClasses + 2] = std::numeric_limits<double>::infinity();
  const Statistics s = statistics(logits_of(x, kClasses), 0, kValid);
  EXPECT_EQ(s.row_sum.data<float>()[0], 1.0f);
  EXPECT_TRUE(std::isnan(s.row_sum.data<float>()[4]));
  EXPECT_TRUE(std::isnan(s.row_sum.data<float>()[5]));
  EXPECT_TRUE(std::isnan(loss_sum(targets_t, s)));
}

// exp itself, element by element: a target of another rank, a maximum of 0 and a sum of 1 leave it
// alone.
TEST_P(SoftmaxLoss, ExponentialIsAccurateOverItsRange) {
  constexpr std::int64_t kPoints = 8800;
  Values x;
  for (std::int64_t i = 0; i < kPoints; ++i) x.push_back(static_cast<double>(-i) * 0.01);
  x = testing::rounded(x, DType::kF32);
  const Tensor target = testing::make_tensor(ctx, std::vector<std::int32_t>{1 << 30});
  const Tensor y = testing::make_output(ctx, {1, kPoints}, DType::kF32);
  ops::softmax_gradient(ctx, logits_of(x, kPoints), target, 0, kPoints,
                        testing::make_zeros(ctx, {1}, DType::kF32),
                        testing::make_tensor(ctx, {1.0}, {1}, DType::kF32), y);
  const Values values = testing::values_of(y);
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double expected = std::exp(x[i]);
    if (x[i] < static_cast<double>(-87.3f)) {
      EXPECT_EQ(values[i], 0.0) << x[i];
    } else {
      EXPECT_LE(std::abs(values[i] - expected), 2e-7 * expected) << x[i];
    }
  }
}

TEST_P(SoftmaxLoss, SameBitsAtAnyThreadCount) {
  constexpr std::int64_t kMany = 6 * 200;
  const Tensor wide = logits_of(testing::random_values(3, kRows * kMany, 2.0), kMany);
  ctx.threads = 1;
  const Statistics one = statistics(wide, 0, kMany - 1);
  ctx.threads = 3;
  const Statistics three = statistics(wide, 0, kMany - 1);
  EXPECT_EQ(testing::bits_of(one.row_sum), testing::bits_of(three.row_sum));
  EXPECT_EQ(testing::bits_of(one.row_max), testing::bits_of(three.row_max));
}

TEST_P(SoftmaxLoss, RefusesWhatDoesNotFit) {
  const Tensor x = logits_of(logits, kClasses);
  const Statistics s = statistics(x, 0, kValid);
  EXPECT_THROW(statistics(x, 0, kClasses + 1), InternalError);
  EXPECT_THROW(statistics(x, 0, -1), InternalError);
  EXPECT_THROW(statistics(x.rows(0, 3), 0, kValid), InternalError);
  EXPECT_THROW(ops::softmax_gradient(ctx, x, targets_t, 0, kValid, s.row_max, s.row_sum,
                                     output({kRows, kValid})),
               InternalError);
  EXPECT_THROW(loss_sum(s.row_max, s), InternalError);
}

TRIREME_FOR_EACH_DTYPE(SoftmaxLoss);

}  // namespace
}  // namespace trireme
