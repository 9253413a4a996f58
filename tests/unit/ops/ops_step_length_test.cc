// Steps whose length depends on a whole parameter, and limits of gradients.
#include <algorithm>
#include <cmath>
#include <limits>

#include "trireme/base/exact_sum.h"
#include "trireme/ops/averages.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/lengths.h"
#include "trireme/ops/update.h"

#include "support/ops_reference.h"

namespace trireme {
namespace {

using testing::Values;
using Kind = ops::StepLength::Kind;

// dtype() is that of the weights; everything else is fp32.
class StepLengths : public testing::OpsTest {
 protected:
  static constexpr std::int64_t kCount = 16384 + 77;
  StepLengths() { set(state); }

  Tensor fp32(const Values& values) {
    return testing::make_tensor(ctx, values, {std::ssize(values)}, DType::kF32);
  }
  double length(const ops::StepLength& rule, double of_master, double of_direction) {
    const Tensor squares = testing::make_zeros(ctx, {2}, DType::kF64);
    const Tensor made = testing::make_zeros(ctx, {1}, DType::kF32);
    const Tensor limbs = ctx.allocate({2 * kExactLimbs}, DType::kI64);
    ops::fill(ctx, limbs, 0.0f);
    for (int i = 0; i < 2; ++i) {
      ops::add_sum_of_squares(ctx, fp32({i == 0 ? of_master : of_direction}), 0,
                              limbs.flat_range(i * kExactLimbs, (i + 1) * kExactLimbs));
    }
    ops::round_exact_sum(ctx, limbs, squares);
    ops::step_length(ctx, rule, squares, made);
    return testing::values_of(made)[0];
  }

  ops::StepState state = {
      .updates = 4, .learning_rate = 0.01f, .gradient_scale = 0.25f, .clip_factor = 0.5f};
  const Values gradient = testing::rounded(testing::random_values(2, kCount), DType::kF32);
  const Tensor master = fp32(testing::random_values(1, kCount));
  const Tensor gradient_t = fp32(gradient);
  const Tensor weights = output({kCount});
  const double bound = testing::tolerance("update", DType::kF32);
};

TEST_P(StepLengths, AdamWDirection) {
  const ops::AdamW rule = {.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-6f, .weight_decay = 0.1f};
  const Values p = testing::values_of(master);
  Values m(kCount, 0.0), v(kCount, 0.0), d(kCount);
  const Tensor first = testing::make_zeros(ctx, {kCount}, DType::kF32);
  const Tensor second = testing::make_zeros(ctx, {kCount}, DType::kF32);
  const Tensor direction = testing::make_zeros(ctx, {kCount}, DType::kF32);
  for (state.updates = 1; state.updates < 4; ++state.updates) {
    set(state);
    ops::adamw_direction(ctx, rule, master, gradient_t, first, second, direction);
    const auto t = static_cast<double>(state.updates);
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double g = gradient[i] * 0.125;
      m[i] = 0.9f * m[i] + (1.0 - 0.9f) * g;
      v[i] = 0.95f * v[i] + (1.0 - 0.95f) * g * g;
      d[i] = m[i] / (1.0 - std::pow(0.9f, t)) /
                 (std::sqrt(v[i] / (1.0 - std::pow(0.95f, t))) + 1e-6f) +
             0.1f * p[i];
    }
  }
  testing::expect_close(direction, d, bound, "direction");
  testing::expect_close(first, m, bound, "exp_avg");
  testing::expect_close(second, v, bound, "exp_avg_sq");
  EXPECT_EQ(testing::values_of(master), p);
  // The direction takes the gradient's memory, and the step is skipped.
  state.finite = 0;
  set(state);
  const std::string before = testing::bits_of(first) + testing::bits_of(second);
  ops::adamw_direction(ctx, rule, master, gradient_t, first, second, gradient_t);
  EXPECT_EQ(testing::values_of(gradient_t), Values(kCount, 0.0));
  EXPECT_EQ(testing::bits_of(first) + testing::bits_of(second), before);
}

TEST_P(StepLengths, OfLamb) {
  EXPECT_FLOAT_EQ(length({.kind = Kind::kTrust}, 6.0, 2.0), 0.01f * 3.0f);
  EXPECT_FLOAT_EQ(length({.kind = Kind::kTrust, .rate = 2.0f}, 6.0, 2.0), 0.02f * 3.0f);
  EXPECT_FLOAT_EQ(length({.kind = Kind::kTrust, .largest = 2.5f}, 6.0, 2.0), 0.01f * 2.5f);
  EXPECT_FLOAT_EQ(length({.kind = Kind::kTrust}, 0.0, 2.0), 0.01f);
  EXPECT_FLOAT_EQ(length({.kind = Kind::kTrust}, 6.0, 0.0), 0.01f);
}

TEST_P(StepLengths, OfLars) {
  const ops::StepLength rule = {
      .kind = Kind::kOfGradient, .coefficient = 0.5f, .weight_decay = 0.25f};
  // The gradient's factor is 0.25 * 0.5.
  EXPECT_FLOAT_EQ(length(rule, 6.0, 4.0), 0.5f * 6.0f / (4.0f * 0.125f + 0.25f * 6.0f));
  EXPECT_FLOAT_EQ(length(rule, 0.0, 4.0), 1.0f);
  EXPECT_FLOAT_EQ(length(rule, 6.0, 0.0), 1.0f);
}

TEST_P(StepLengths, OfAdafactor) {
  ops::StepLength rule = {.kind = Kind::kRelative, .largest = 1.0f, .elements = 4};
  EXPECT_FLOAT_EQ(length(rule, 6.0, 1.0), 0.01f * 3.0f);         // below the limit
  EXPECT_FLOAT_EQ(length(rule, 6.0, 8.0), 0.01f * 3.0f / 4.0f);  // a root mean square of 4
  EXPECT_FLOAT_EQ(length(rule, 0.0, 1.0), 0.01f * 1e-3f);        // weights that are almost zero
  rule.rate = 100.0f;                                            // above 1 / sqrt(4)
  EXPECT_FLOAT_EQ(length(rule, 6.0, 1.0), 0.5f * 3.0f);
  rule.largest = 8.0f;
  EXPECT_FLOAT_EQ(length(rule, 6.0, 8.0), 0.5f * 3.0f);
}

// A length takes the place of the learning rate, and of the gradient's factor 1.
TEST_P(StepLengths, StepsGoSoFar) {
  const Tensor three = fp32({3.0});
  Values p = testing::values_of(master);
  ops::step_along(ctx, {.weight_decay = 0.1f}, master, gradient_t, weights, three);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] = p[i] * (1.0 - 0.01f * 0.1f) - 3.0 * gradient[i];
  testing::expect_close(master, p, bound, "step_along");
  for (const bool momentum : {false, true}) {
    const ops::Sgd rule = {.momentum = momentum ? 0.9f : 0.0f, .l2_penalty = 0.1f};
    const Tensor velocity = testing::make_zeros(ctx, {kCount}, DType::kF32);
    p = testing::values_of(master);
    ops::sgd_step(ctx, rule, master, gradient_t, momentum ? velocity : Tensor(), weights, three);
    for (std::size_t i = 0; i < p.size(); ++i) {
      p[i] -= 0.01f * 3.0 * (gradient[i] * 0.125 + 0.1f * p[i]);
    }
    testing::expect_close(master, p, bound, "sgd_step");
  }
  testing::expect_close(weights, testing::rounded(testing::values_of(master), dtype()), 0.0,
                        "weights");
}

TEST_P(StepLengths, SumsAreRoundedTogether) {
  const Tensor limbs = ctx.allocate({3 * kExactLimbs}, DType::kI64);
  ops::fill(ctx, limbs, 0.0f);
  for (int i = 0; i < 3; ++i) {
    ops::add_sum_of_squares(ctx, fp32({1.0 + i}), 0,
                            limbs.flat_range(i * kExactLimbs, (i + 1) * kExactLimbs));
  }
  const Tensor sums = testing::make_zeros(ctx, {3}, DType::kF64);
  ops::round_exact_sum(ctx, limbs, sums);
  EXPECT_EQ(testing::values_of(sums), (Values{1.0, 4.0, 9.0}));
}

// Follows the formulas of Defazio et al. 2024: z moves by AdamW's step from y, x averages z.
TEST_P(StepLengths, ScheduleFree) {
  const ops::ScheduleFree rule = {
      .beta1 = 0.8f, .beta2 = 0.95f, .epsilon = 1e-6f, .weight_decay = 0.1f, .rate = 2.0f};
  Values x = testing::values_of(master), z = x, v(kCount, 0.0);
  const Tensor gap = testing::make_zeros(ctx, {kCount}, DType::kF32);
  const Tensor second = testing::make_zeros(ctx, {kCount}, DType::kF32);
  Values y = x;
  double squares = 0.0;
  state.rate_squares = 0.0;
  for (state.updates = 1; state.updates < 5; ++state.updates) {
    const auto t = static_cast<double>(state.updates);
    state.learning_rate = 0.01f * static_cast<float>(std::min(t, 2.0));  // a warm-up
    const double rate = 2.0 * double{state.learning_rate};
    state.rate_squares += double{state.learning_rate} * double{state.learning_rate};
    squares += rate * rate;
    set(state);
    ops::schedule_free_step(ctx, rule, master, gradient_t, gap, second, weights);
    for (std::size_t i = 0; i < x.size(); ++i) {
      const double g = gradient[i] * 0.125;
      v[i] = 0.95f * v[i] + (1.0 - 0.95f) * g * g;
      const double step = g / (std::sqrt(v[i] / (1.0 - std::pow(0.95f, t))) + 1e-6f);
      z[i] -= rate * (step + 0.1f * y[i]);
      x[i] += rate * rate / squares * (z[i] - x[i]);
      y[i] = (1.0 - 0.8f) * z[i] + 0.8f * x[i];
    }
  }
  Values expected_gap = z;
  for (std::size_t i = 0; i < z.size(); ++i) expected_gap[i] -= x[i];
  testing::expect_close(master, x, bound, "x");
  testing::expect_close(gap, expected_gap, 10 * bound, "gap");
  testing::expect_close(weights, y, testing::tolerance("update", dtype()), "y");
  const Tensor again = output({kCount});
  ops::schedule_free_weights(ctx, rule, master, gap, again);
  EXPECT_EQ(testing::bits_of(again), testing::bits_of(weights));
}

// The first ones weigh alike, then each a tenth; steps up to 2 and skipped ones do not count.
TEST_P(StepLengths, AveragesOfWeights) {
  for (const float decay : {0.9f, 1.0f}) {
    const ops::WeightAverage rule = {.decay = decay, .from = 2};
    const Tensor average = testing::make_zeros(ctx, {kCount}, DType::kF32);
    Values expected(kCount, 0.0);
    double counted = 0.0;
    set({});
    for (int step = 1; step < 20; ++step) {
      const Values weights_now = testing::rounded(
          testing::random_values(static_cast<std::uint64_t>(step), kCount), DType::kF32);
      ops::StepState now = ops::read_step_state(ctx);
      now.step = step;
      now.finite = step == 7 ? 0 : 1;
      set(now);
      ops::count_average(ctx, rule);
      ops::average_weights(ctx, rule, fp32(weights_now), average);
      if (step == 7) continue;
      if (step <= 2) {
        expected = weights_now;
        continue;
      }
      counted += 1.0;
      const double share = std::max(1.0 / counted, 1.0 - double{decay});
      for (std::size_t i = 0; i < expected.size(); ++i) {
        expected[i] += share * (weights_now[i] - expected[i]);
      }
    }
    EXPECT_EQ(ops::read_step_state(ctx).averaged, 16);
    testing::expect_close(average, expected, bound, "average");
  }
}

TEST_P(StepLengths, ValuesAreLimited) {
  Values g = gradient;
  g[1] = std::numeric_limits<double>::quiet_NaN();
  const Tensor limited = fp32(g);
  ops::clip_values(ctx, limited, 0.125f);  // of gradient * 0.25, the clip factor is not known yet
  const Values after = testing::values_of(limited);
  EXPECT_TRUE(std::isnan(after[1]));
  for (std::size_t i = 2; i < g.size(); ++i) {
    ASSERT_EQ(after[i], std::clamp(g[i], -0.5, 0.5)) << i;
  }
}

TEST_P(StepLengths, NormsAreLimited) {
  const auto limited = [&](double sum, float limit) {
    const Tensor x = fp32(gradient);
    ops::clip_to_norm(ctx, x, testing::make_tensor(ctx, sum), limit);
    return testing::values_of(x)[7] / gradient[7];
  };
  EXPECT_EQ(limited(64.0, 0.5f), 0.25);  // the norm is 8 * 0.25
  EXPECT_EQ(limited(64.0, 2.5f), 1.0);
  EXPECT_EQ(limited(0.0, 2.5f), 1.0);
  EXPECT_EQ(limited(std::numeric_limits<double>::infinity(), 2.5f), 1.0);
  EXPECT_EQ(limited(std::numeric_limits<double>::quiet_NaN(), 2.5f), 1.0);
}

TEST_P(StepLengths, RefusesWhatDoesNotFit) {
  const Tensor two = fp32({1.0, 2.0});
  EXPECT_THROW(ops::step_along(ctx, {}, master, gradient_t, weights, two), InternalError);
  EXPECT_THROW(ops::sgd_step(ctx, {}, master, gradient_t, Tensor(), weights, two), InternalError);
  EXPECT_THROW(ops::step_length(ctx, {}, two, two), InternalError);
  EXPECT_THROW(ops::clip_to_norm(ctx, gradient_t, two, 1.0f), InternalError);
}

TRIREME_FOR_EACH_DTYPE(StepLengths);

}  // namespace
}  // namespace trireme
