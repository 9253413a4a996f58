#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/ops/softmax_loss.h"

#include "support/ops_reference.h"

namespace trireme {
namespace {

using testing::Values;

// dtype() is that of the gradient; logits are fp32, or of its type where it is bf16.
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
    return testing::values_of(sum)[0];
  }
  Tensor logits_of(const Values& values, std::int64_t classes, DType type = DType::kF32) {
    return testing::make_tensor(
        ctx, values, {static_cast<std::int64_t>(values.size()) / classes, classes}, type);
  }
  Statistics empty_statistics() {
    const auto sums = [&] { return testing::make_output(ctx, {kRows}, DType::kF32); };
    return {sums(), sums(), sums()};
  }
  // The types that logits may have beside such a gradient.
  std::vector<DType> logit_types() const {
    if (dtype() == DType::kBF16) return {DType::kF32, DType::kBF16};
    return {DType::kF32};
  }
  // softmax_and_gradient against softmax_statistics and softmax_gradient, twice and in place.
  void expect_the_same_at_once(std::int64_t classes, DType type, const ops::LogitBend& bend) {
    const std::int64_t valid = classes - (classes > 8 ? 5 : 0);
    const Values x = testing::rounded(testing::random_values(7, kRows * classes, 3.0), type);
    const std::vector<std::int32_t> some = {0,
                                            static_cast<std::int32_t>(valid - 1),
                                            ops::kMaskedTarget,
                                            7,
                                            static_cast<std::int32_t>(valid),  // padding
                                            3};
    const Tensor some_t = testing::make_tensor(ctx, some), x_t = logits_of(x, classes, type);
    if (bend.bends()) ops::bend_logits(ctx, x_t, bend);
    const Statistics apart = empty_statistics(), once = empty_statistics();
    const Tensor dx = output({kRows, classes}), dx_once = output({kRows, classes});
    set({.loss_scale = 8.0f});
    ops::softmax_statistics(ctx, x_t, some_t, 0, valid, apart.row_max, apart.row_sum,
                            apart.target_logit);
    ops::softmax_gradient(ctx, x_t, some_t, 0, valid, apart.row_max, apart.row_sum, dx, bend);
    const auto at_once = [&](const Tensor& in, const Tensor& out) {
      ops::softmax_and_gradient(ctx, in, some_t, valid, once.row_max, once.row_sum,
                                once.target_logit, out, bend);
    };
    at_once(x_t, dx_once);
    const std::string what = std::to_string(classes) + " classes, " + std::string(name_of(type));
    EXPECT_EQ(testing::bits_of(once.row_max), testing::bits_of(apart.row_max)) << what;
    EXPECT_EQ(testing::bits_of(once.target_logit), testing::bits_of(apart.target_logit)) << what;
    testing::expect_close(once.row_sum, testing::values_of(apart.row_sum), 1e-6, what);
    testing::expect_close(dx_once, testing::values_of(dx), testing::tolerance("softmax", dtype()),
                          what);
    const Values values = testing::values_of(dx_once), others = testing::values_of(dx);
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i] == 0.0, others[i] == 0.0) << what << ", element " << i;
    }
    const std::string bits = testing::bits_of(dx_once);
    at_once(x_t, dx_once);
    EXPECT_EQ(testing::bits_of(dx_once), bits) << what << ", again";
    if (dtype() != type) return;
    at_once(x_t, x_t);
    EXPECT_EQ(testing::bits_of(x_t), bits) << what << ", in place";
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

// A power of two moves nothing but the exponent, so long as no gradient is subnormal.
TEST_P(SoftmaxLoss, GradientIsMultipliedByTheLossScale) {
  const Tensor logits_t = logits_of(logits, kClasses);
  const Statistics s = statistics(logits_t, 0, kValid);
  const Tensor plain = testing::make_output(ctx, {kRows, kClasses}, DType::kF32);
  const Tensor scaled = output({kRows, kClasses});
  ops::softmax_gradient(ctx, logits_t, targets_t, 0, kValid, s.row_max, s.row_sum, plain);
  set({.loss_scale = 1024.0f});
  ops::softmax_gradient(ctx, logits_t, targets_t, 0, kValid, s.row_max, s.row_sum, scaled);
  Values expected = testing::values_of(plain);
  for (double& value : expected) value *= 1024.0;
  testing::expect_close(scaled, testing::rounded(expected, dtype()), 0.0, "scaled");
  if (dtype() != DType::kF16) return;
  set({.loss_scale = 131072.0f});  // beyond fp16
  ops::softmax_gradient(ctx, logits_t, targets_t, 0, kValid, s.row_max, s.row_sum, scaled);
  EXPECT_EQ(testing::values_of(scaled)[0], -std::numeric_limits<double>::infinity());
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

// The loss of bent logits by those before; in one step, in two, and in place.
TEST_P(SoftmaxLoss, GradientOfBentLogits) {
  for (const ops::LogitBend bend : {ops::LogitBend{0.5f, 3.0f}, {1.0f, 30.0f}, {1.7f, 0.0f}}) {
    const auto bent = [&](Values x) {
      for (double& value : x) {
        value *= static_cast<double>(bend.scale);
        const double cap = bend.cap;
        if (cap > 0.0) value = cap * std::tanh(value / cap);
      }
      return x;
    };
    const Tensor logits_t = logits_of(logits, kClasses);
    ops::bend_logits(ctx, logits_t, bend);
    testing::expect_close(logits_t, bent(logits), 2e-6, "bent");
    const Statistics s = statistics(logits_t, 0, kValid), once = statistics(logits_t, 0, kValid);
    const Tensor dlogits = output({kRows, kClasses}), at_once = output({kRows, kClasses});
    ops::softmax_gradient(ctx, logits_t, targets_t, 0, kValid, s.row_max, s.row_sum, dlogits, bend);
    const Values expected = testing::finite_differences(
        [&](const Values& x) {
          return testing::reference::cross_entropy(bent(x), targets, kClasses, kValid);
        },
        logits);
    testing::expect_close(dlogits, expected, testing::tolerance("bent", dtype()), "dlogits");
    ops::softmax_and_gradient(ctx, logits_t, targets_t, kValid, once.row_max, once.row_sum,
                              once.target_logit, at_once, bend);
    EXPECT_EQ(testing::bits_of(at_once), testing::bits_of(dlogits));
    if (dtype() != DType::kF32) continue;
    ops::softmax_gradient(ctx, logits_t, targets_t, 0, kValid, s.row_max, s.row_sum, logits_t,
                          bend);
    EXPECT_EQ(testing::bits_of(logits_t), testing::bits_of(dlogits));
  }
}

// Rows of whole chunks, longer than a block of a GPU takes at once.
TEST_P(SoftmaxLoss, ManyClasses) {
  constexpr std::int64_t kMany = 4 * 2048, kUsed = kMany - 13;
  const std::vector<std::int32_t> some = {5, kUsed - 1, ops::kMaskedTarget};
  const Values x = testing::rounded(testing::random_values(5, 3 * kMany, 3.0), DType::kF32);
  const Tensor x_t = logits_of(x, kMany), some_t = testing::make_tensor(ctx, some);
  Statistics s = {testing::make_output(ctx, {3}, DType::kF32),
                  testing::make_output(ctx, {3}, DType::kF32),
                  testing::make_output(ctx, {3}, DType::kF32)};
  ops::softmax_statistics(ctx, x_t, some_t, 0, kUsed, s.row_max, s.row_sum, s.target_logit);
  const double expected = testing::reference::cross_entropy(x, some, kMany, kUsed);
  EXPECT_NEAR(loss_sum(some_t, s), expected, 1e-6 * expected);
  const Tensor dx = output({3, kMany});
  ops::softmax_gradient(ctx, x_t, some_t, 0, kUsed, s.row_max, s.row_sum, dx);
  Values gradient(3 * kMany, 0.0);
  const Values tops = testing::values_of(s.row_max), sums = testing::values_of(s.row_sum);
  for (std::size_t r = 0; r < 2; ++r) {
    for (std::size_t c = 0; c < kUsed; ++c) {
      gradient[r * kMany + c] = std::exp(x[r * kMany + c] - tops[r]) / sums[r];
    }
    gradient[r * kMany + static_cast<std::size_t>(some[r])] -= 1.0;
  }
  testing::expect_close(dx, gradient, testing::tolerance("softmax", dtype()), "dlogits");
}

// Lengths of rows that a GPU holds in shared memory, once or twice, in part or whole, and of which
// threads take one piece, several or none; one of no whole chunks. There are more rows than blocks.
TEST_P(SoftmaxLoss, StatisticsAndGradientAtOnce) {
  for (const std::int64_t classes : {8, 37, 64, 4096, 4104, 12288, 25600, 51200}) {
    for (const DType type : logit_types()) {
      const ops::LogitBend bend = {1.5f, 20.0f};
      expect_the_same_at_once(classes, type, {});
      if (classes != 12288) expect_the_same_at_once(classes, type, bend);
    }
  }
}

TEST_P(SoftmaxLoss, StatisticsAndGradientAtOnceShowWhatIsNotFinite) {
  for (const std::int64_t classes : {64, 25600}) {
    for (const DType type : logit_types()) {
      Values x = testing::rounded(testing::random_values(8, kRows * classes, 3.0), type);
      x[5] = std::numeric_limits<double>::quiet_NaN();
      x[static_cast<std::size_t>(2 * classes - 1)] = std::numeric_limits<double>::infinity();
      const Statistics s = empty_statistics();
      const Tensor dx = output({kRows, classes});
      ops::softmax_and_gradient(ctx, logits_of(x, classes, type), targets_t, classes, s.row_max,
                                s.row_sum, s.target_logit, dx);
      const Values row_sums = testing::values_of(s.row_sum), values = testing::values_of(dx);
      for (std::size_t row = 0; row < kRows; ++row) {
        EXPECT_EQ(std::isfinite(row_sums[row]), row > 1) << row;
        EXPECT_EQ(std::isfinite(values[row * static_cast<std::size_t>(classes)]), row > 1) << row;
      }
    }
  }
}

// All that is known of logits in bf16 are these roundings: the loss and its gradient are those of
// the rounded logits.
TEST_P(SoftmaxLoss, LogitsInBf16) {
  if (dtype() != DType::kBF16) return;  // the gradient has the type of the logits
  const Values x = testing::rounded(logits, DType::kBF16);
  const Tensor x_t = logits_of(x, kClasses, DType::kBF16);
  const Statistics s = statistics(x_t, 0, kValid);
  const double expected = testing::reference::cross_entropy(x, targets, kClasses, kValid);
  EXPECT_NEAR(loss_sum(targets_t, s), expected, 1e-6 * expected);
  const Values gradient = testing::finite_differences(
      [&](const Values& at) {
        return testing::reference::cross_entropy(at, targets, kClasses, kValid);
      },
      x);
  const Tensor apart = output({kRows, kClasses}), once = output({kRows, kClasses});
  ops::softmax_gradient(ctx, x_t, targets_t, 0, kValid, s.row_max, s.row_sum, apart);
  testing::expect_close(apart, gradient, testing::tolerance("softmax", dtype()), "apart");
  ops::softmax_and_gradient(ctx, x_t, targets_t, kValid, s.row_max, s.row_sum, s.target_logit,
                            once);
  testing::expect_close(once, gradient, testing::tolerance("softmax", dtype()), "at once");
  ops::softmax_gradient(ctx, x_t, targets_t, 0, kValid, s.row_max, s.row_sum, x_t);
  EXPECT_EQ(testing::bits_of(x_t), testing::bits_of(apart)) << "in place";
}

TEST_P(SoftmaxLoss, LogitsInBf16AreBentAndRounded) {
  if (dtype() != DType::kBF16) return;  // the gradient has the type of the logits
  constexpr std::int64_t kMany = 3001;
  const Values x = testing::rounded(testing::random_values(4, kMany, 9.0), DType::kBF16);
  for (const ops::LogitBend bend : {ops::LogitBend{0.5f, 3.0f}, {1.7f, 0.0f}}) {
    const Tensor in_fp32 = logits_of(x, kMany), in_bf16 = logits_of(x, kMany, DType::kBF16);
    ops::bend_logits(ctx, in_fp32, bend);
    ops::bend_logits(ctx, in_bf16, bend);
    const Values expected = testing::rounded(testing::values_of(in_fp32), DType::kBF16);
    testing::expect_close(in_bf16, expected, 0.0, "bent");
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
  Statistics a = statistics(left_t, 0, kCut);
  const Statistics b = statistics(right_t, kCut, kValid - kCut);
  const auto combined = [&](const Tensor& left_part, const Tensor& right_part,
                            const auto& combine) {  // as the ranks would
    Values values = testing::values_of(left_part);
    const Values others = testing::values_of(right_part);
    for (std::size_t r = 0; r < kRows; ++r) values[r] = combine(values[r], others[r]);
    return testing::make_tensor(ctx, values, {kRows}, DType::kF32);
  };
  const auto sum = [](double x, double y) { return x + y; };
  const Tensor tops =
      combined(a.row_max, b.row_max, [](double x, double y) { return std::max(x, y); });
  ops::softmax_rescale(ctx, a.row_max, tops, a.row_sum);
  ops::softmax_rescale(ctx, b.row_max, tops, b.row_sum);
  a = {tops, combined(a.row_sum, b.row_sum, sum), combined(a.target_logit, b.target_logit, sum)};
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
  EXPECT_EQ(testing::values_of(none.row_max),
            Values(kRows, -std::numeric_limits<double>::infinity()));
  EXPECT_EQ(testing::values_of(none.target_logit), Values(kRows, 0.0));
  ops::softmax_rescale(ctx, none.row_max, all.row_max, none.row_sum);
  EXPECT_EQ(testing::values_of(none.row_sum), Values(kRows, 0.0));
}

TEST_P(SoftmaxLoss, LargeLogitsStayFiniteAndNotANumberShows) {
  Values x = logits;
  for (std::size_t i = 0; i < kClasses; ++i) x[i] = 3e38 - static_cast<double>(i) * 1e36;
  x[4 * kClasses + 2] = std::numeric_limits<double>::quiet_NaN();
  x[5 * kClasses + 2] = std::numeric_limits<double>::infinity();
  const Statistics s = statistics(logits_of(x, kClasses), 0, kValid);
  const Values row_sum = testing::values_of(s.row_sum);
  EXPECT_EQ(row_sum[0], 1.0);
  EXPECT_TRUE(std::isnan(row_sum[4]));
  EXPECT_TRUE(std::isnan(row_sum[5]));
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
  const Tensor half = logits_of(logits, kClasses, DType::kF16);
  EXPECT_THROW(statistics(half, 0, kValid), InternalError);
  EXPECT_THROW(ops::bend_logits(ctx, half, {0.5f, 3.0f}), InternalError);
  if (dtype() == DType::kBF16) return;
  EXPECT_THROW(ops::softmax_gradient(ctx, logits_of(logits, kClasses, DType::kBF16), targets_t, 0,
                                     kValid, s.row_max, s.row_sum, output({kRows, kClasses})),
               InternalError);
}

// dtype() is that of the logits and their gradient.
class Classification : public testing::OpsTest {
 protected:
  static constexpr std::int64_t kRows = 7, kClasses = 11;
  const std::vector<std::int32_t> targets = {0, 10, ops::kMaskedTarget, 7, 7, 2, 5};
  const Tensor targets_t = testing::make_tensor(ctx, targets);
  const Values logits = random(1, kRows* kClasses, 3.0);
  const Tensor logits_t = tensor(logits, {kRows, kClasses});
  const Tensor sum = testing::make_tensor(ctx, 0.5);
};

TEST_P(Classification, LossAndGradient) {
  for (const float smoothing : {0.0f, 0.1f}) {
    const auto loss = [&](const Values& x) {
      return testing::reference::classification_loss(x, targets, kClasses,
                                                     static_cast<double>(smoothing));
    };
    const Tensor total = testing::make_tensor(ctx, 0.5), dlogits = output({kRows, kClasses});
    set({.loss_scale = 8.0f});
    ops::classification_loss(ctx, logits_t, targets_t, smoothing, total, dlogits);
    EXPECT_NEAR(testing::values_of(total)[0], 0.5 + loss(logits), 1e-6 * loss(logits));
    Values expected = testing::finite_differences(loss, logits);
    for (double& value : expected) value *= 8.0;
    testing::expect_close(dlogits, expected, testing::tolerance("softmax", dtype()), "dlogits");
    // It works without a gradient, and in place.
    ops::classification_loss(ctx, logits_t, targets_t, smoothing, total, Tensor());
    EXPECT_NEAR(testing::values_of(total)[0], 0.5 + 2 * loss(logits), 1e-6 * loss(logits));
    const Tensor in_place = tensor(logits, {kRows, kClasses});
    ops::classification_loss(ctx, in_place, targets_t, smoothing, total, in_place);
    EXPECT_EQ(testing::bits_of(in_place), testing::bits_of(dlogits));
  }
}

TEST_P(Classification, AManyClassesLossDoesNotFollowTheThreads) {
  constexpr std::int64_t kMany = 3000;
  const Tensor many = tensor(random(2, kRows * kMany), {kRows, kMany});
  std::string bits;
  for (const int threads : {1, 3}) {
    ctx.threads = threads;
    const Tensor total = testing::make_zeros(ctx, {1}, DType::kF64);
    const Tensor dlogits = output({kRows, kMany});
    ops::classification_loss(ctx, many, targets_t, 0.1f, total, dlogits);
    const std::string now = testing::bits_of(total) + testing::bits_of(dlogits);
    if (!bits.empty()) {
      EXPECT_EQ(now, bits);
    }
    bits = now;
  }
}

TEST_P(Classification, CountsWhoIsRight) {
  constexpr std::int64_t kSix = 6;
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Values x = {
      9,   1, 2, 3, 4, 5,  // the largest
      9,   1, 2, 3, 4, 5,  // the fifth
      9,   1, 2, 3, 4, 5,  // the last
      1,   1, 1, 1, 1, 1,  // equal ones: the first class is the largest
      1,   1, 1, 1, 1, 1,  // and the last class the sixth
      nan, 1, 2, 3, 4, 5,  // not a number
      9,   1, 2, 3, 4, 5,  // masked
      nan, 1, 2, 3, 4, 5,  // a NaN is larger than all others
  };
  const std::vector<std::int32_t> classes = {0, 2, 1, 0, 5, 0, ops::kMaskedTarget, 5};
  const Tensor counts = testing::make_tensor(ctx, std::vector<std::int64_t>{10, 20});
  ops::count_correct(ctx, tensor(x, {8, kSix}), testing::make_tensor(ctx, classes), counts);
  std::vector<std::int64_t> got(2);
  testing::download(counts, got.data());
  EXPECT_EQ(got, (std::vector<std::int64_t>{10 + 2, 20 + 4}));
  // Where there are no more than five classes all are among the five largest, but for NaN.
  const Tensor few = testing::make_tensor(ctx, std::vector<std::int64_t>{0, 0});
  ops::count_correct(ctx, tensor({2, 1, nan, 4}, {2, 2}),
                     testing::make_tensor(ctx, std::vector<std::int32_t>{1, 0}), few);
  testing::download(few, got.data());
  EXPECT_EQ(got, (std::vector<std::int64_t>{0, 1}));
}

TEST_P(Classification, RefusesWhatDoesNotFit) {
  const auto refuses = [&](const auto& call) { EXPECT_THROW(call(), InternalError); };
  const Tensor few = logits_t.rows(0, 2);
  const Tensor counts = testing::make_tensor(ctx, std::vector<std::int64_t>{0, 0});
  refuses([&] { ops::classification_loss(ctx, few, targets_t, 0.0f, sum, {}); });
  refuses([&] { ops::classification_loss(ctx, logits_t, targets_t, 1.0f, sum, {}); });
  refuses([&] { ops::classification_loss(ctx, logits_t, targets_t, -0.1f, sum, {}); });
  refuses([&] { ops::classification_loss(ctx, logits_t, targets_t, 0.0f, logits_t, {}); });
  refuses([&] { ops::classification_loss(ctx, logits_t, targets_t, 0.0f, sum, few); });
  refuses([&] { ops::count_correct(ctx, few, targets_t, counts); });
  refuses([&] { ops::count_correct(ctx, logits_t, targets_t, sum); });
}

TRIREME_FOR_EACH_DTYPE(SoftmaxLoss);
TRIREME_FOR_EACH_DTYPE(Classification);

}  // namespace
}  // namespace trireme
