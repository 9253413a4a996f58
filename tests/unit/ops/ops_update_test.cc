#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "trireme/base/exact_sum.h"
#include "trireme/ops/averages.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/lengths.h"
#include "trireme/ops/split.h"
#include "trireme/ops/update.h"
#include "trireme/tensor/split_float.h"

#include "support/ops_reference.h"

namespace trireme {
namespace {

using testing::Values;

// dtype() is that of the weights; everything else is fp32.
class Update : public testing::OpsTest {
 protected:
  Tensor no_squares() {
    const Tensor limbs = ctx.allocate({kExactLimbs}, DType::kI64);
    ops::fill(ctx, limbs, 0.0f);
    return limbs;
  }
  double rounded_sum(const Tensor& limbs) {
    const Tensor sum = testing::make_zeros(ctx, {1}, DType::kF64);
    ops::round_exact_sum(ctx, limbs, sum);
    return testing::values_of(sum)[0];
  }
  double sum_of_squares(const Tensor& x, std::int64_t first = 0) {
    const Tensor limbs = no_squares();
    ops::add_sum_of_squares(ctx, x, first, limbs);
    return rounded_sum(limbs);
  }
  Tensor fp32(const Values& values) {
    return testing::make_tensor(ctx, values, {kCount}, DType::kF32);
  }

  static constexpr std::int64_t kCount = 16384 + 77;
  Update() { set(state); }

  ops::StepState state = {
      .updates = 3, .learning_rate = 0.01f, .gradient_scale = 0.25f, .clip_factor = 0.5f};
  const Values gradient = testing::rounded(testing::random_values(2, kCount), DType::kF32);
  const Tensor master = fp32(testing::random_values(1, kCount));
  const Tensor gradient_t = fp32(gradient);
  const Tensor exp_avg = fp32(testing::random_values(3, kCount, 0.1));
  const Tensor exp_avg_sq = fp32([] {
    Values v = testing::random_values(4, kCount, 0.1);
    for (double& value : v) value *= value;
    return v;
  }());
  const Tensor weights = output({kCount});
};

TEST_P(Update, AdamW) {
  const ops::AdamW rule = {.beta1 = 0.9f, .beta2 = 0.95f, .epsilon = 1e-8f, .weight_decay = 0.1f};
  Values p = testing::values_of(master), m = testing::values_of(exp_avg),
         v = testing::values_of(exp_avg_sq);
  for (; state.updates < 6; ++state.updates) {
    set(state);
    ops::adamw_step(ctx, rule, master, gradient_t, exp_avg, exp_avg_sq, weights);
    const auto t = static_cast<double>(state.updates);
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double g = gradient[i] * 0.125;
      m[i] = 0.9f * m[i] + (1.0 - 0.9f) * g;
      v[i] = 0.95f * v[i] + (1.0 - 0.95f) * g * g;
      const double first = m[i] / (1.0 - std::pow(0.9f, t));
      const double second = v[i] / (1.0 - std::pow(0.95f, t));
      p[i] -= 0.01f * 0.1f * p[i];
      p[i] -= 0.01f * first / (std::sqrt(second) + 1e-8);
    }
  }
  const double bound = testing::tolerance("update", DType::kF32);
  testing::expect_close(master, p, bound, "master");
  testing::expect_close(exp_avg, m, bound, "exp_avg");
  testing::expect_close(exp_avg_sq, v, bound, "exp_avg_sq");
  testing::expect_close(weights, testing::rounded(testing::values_of(master), dtype()), 0.0,
                        "weights");
}

// More parts than a kernel takes, of all sizes, wherever they begin, each with a rule of its own,
// and weights of two types or none: what one part after the other gives, and nothing in between.
TEST_P(Update, AdamWOfManyParts) {
  std::vector<ops::AdamWPart> parts, alone;
  const auto apart = [&](const Tensor& x) { return fp32(testing::values_of(x)); };
  const Tensor p = apart(master), m = apart(exp_avg), v = apart(exp_avg_sq);
  const Tensor to = output({kCount}), in_fp32 = apart(master), in_fp32_too = apart(master);
  std::int64_t at = 0;
  for (int i = 0; at < kCount; ++i) {
    const std::int64_t sizes[] = {1, 8, 3, 0, 4096, 8, 255, 1024, 2048, 77};
    const std::int64_t end = std::min(kCount, at + sizes[i % 10] / (i < 20 ? 1 : 40));
    const ops::AdamW rule = {.beta1 = 0.9f - 0.01f * static_cast<float>(i % 7),
                             .weight_decay = i % 2 == 0 ? 0.1f : 0.0f,
                             .l2_penalty = i % 3 == 0 ? 0.1f : 0.0f,
                             .rate = 1.0f + static_cast<float>(i % 4)};
    const auto part = [&](const Tensor& x) { return x.flat_range(at, end); };
    parts.push_back({rule, part(master), part(gradient_t), part(exp_avg), part(exp_avg_sq),
                     part(i % 11 == 10  ? master
                          : i % 11 == 5 ? in_fp32
                                        : weights)});
    alone.push_back({rule, part(p), part(gradient_t), part(m), part(v),
                     part(i % 11 == 10  ? p
                          : i % 11 == 5 ? in_fp32_too
                                        : to)});
    at = end + (i % 5 == 1 && end < kCount ? 1 : 0);  // some elements are in no part
  }
  ASSERT_GT(parts.size(), 90u);
  ops::adamw_step(ctx, parts);
  for (const auto& [rule, a, g, b, c, w] : alone) ops::adamw_step(ctx, rule, a, g, b, c, w);
  EXPECT_EQ(testing::bits_of(master), testing::bits_of(p));
  EXPECT_EQ(testing::bits_of(exp_avg), testing::bits_of(m));
  EXPECT_EQ(testing::bits_of(exp_avg_sq), testing::bits_of(v));
  EXPECT_EQ(testing::bits_of(weights), testing::bits_of(to));
  EXPECT_EQ(testing::bits_of(in_fp32), testing::bits_of(in_fp32_too));
  ops::adamw_step(ctx, std::span<const ops::AdamWPart>());
}

// Follows PyTorch's Adam with weight_decay: the penalty's gradient goes through both averages.
TEST_P(Update, AdamWithAnL2Penalty) {
  const ops::AdamW rule = {.beta1 = 0.9f, .beta2 = 0.999f, .epsilon = 1e-6f, .l2_penalty = 0.1f};
  Values p = testing::values_of(master), m(kCount, 0.0), v(kCount, 0.0);
  const Tensor first = testing::make_zeros(ctx, {kCount}, DType::kF32);
  const Tensor second = testing::make_zeros(ctx, {kCount}, DType::kF32);
  for (state.updates = 1; state.updates < 4; ++state.updates) {
    set(state);
    ops::adamw_step(ctx, rule, master, gradient_t, first, second, weights);
    const auto t = static_cast<double>(state.updates);
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double g = gradient[i] * 0.125 + 0.1f * p[i];
      m[i] = 0.9f * m[i] + (1.0 - 0.9f) * g;
      v[i] = 0.999f * v[i] + (1.0 - 0.999f) * g * g;
      const double denominator = std::sqrt(v[i] / (1.0 - std::pow(0.999f, t))) + 1e-6f;
      p[i] -= 0.01f * m[i] / (1.0 - std::pow(0.9f, t)) / denominator;
    }
  }
  const double bound = testing::tolerance("update", DType::kF32);
  testing::expect_close(master, p, bound, "master");
  testing::expect_close(first, m, bound, "exp_avg");
  testing::expect_close(second, v, bound, "exp_avg_sq");
  testing::expect_close(weights, testing::rounded(testing::values_of(master), dtype()), 0.0,
                        "weights");
}

// Follows PyTorch's SGD with weight_decay, momentum and nesterov.
TEST_P(Update, SgdWithAnL2Penalty) {
  for (const bool nesterov : {false, true}) {
    const ops::Sgd rule = {.momentum = 0.9f, .l2_penalty = 0.1f, .nesterov = nesterov};
    Values p = testing::values_of(master), v(kCount, 0.0);
    const Tensor velocity = testing::make_zeros(ctx, {kCount}, DType::kF32);
    for (int step = 0; step < 3; ++step) {
      ops::sgd_step(ctx, rule, master, gradient_t, velocity, weights);
      for (std::size_t i = 0; i < p.size(); ++i) {
        const double g = gradient[i] * 0.125 + 0.1f * p[i];
        v[i] = 0.9f * v[i] + g;
        p[i] -= 0.01f * (nesterov ? g + 0.9f * v[i] : v[i]);
      }
    }
    const double bound = testing::tolerance("update", DType::kF32);
    testing::expect_close(master, p, bound, nesterov ? "nesterov" : "master");
    testing::expect_close(velocity, v, bound, "velocity");
    testing::expect_close(weights, testing::rounded(testing::values_of(master), dtype()), 0.0,
                          "weights");
  }
  Values p = testing::values_of(master);
  ops::sgd_step(ctx, {.l2_penalty = 0.1f}, master, gradient_t, Tensor(), weights);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] -= 0.01f * (gradient[i] * 0.125 + 0.1f * p[i]);
  testing::expect_close(master, p, testing::tolerance("update", DType::kF32), "without momentum");
}

// Nesterov's momentum with decoupled decay.
TEST_P(Update, SgdWithNesterovMomentum) {
  const ops::Sgd rule = {.momentum = 0.9f, .weight_decay = 0.1f, .nesterov = true};
  Values p = testing::values_of(master), v(kCount, 0.0);
  const Tensor velocity = testing::make_zeros(ctx, {kCount}, DType::kF32);
  for (int step = 0; step < 3; ++step) {
    ops::sgd_step(ctx, rule, master, gradient_t, velocity, weights);
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double g = gradient[i] * 0.125;
      v[i] = 0.9f * v[i] + g;
      p[i] -= 0.01f * (g + 0.9f * v[i] + 0.1f * p[i]);
    }
  }
  testing::expect_close(master, p, testing::tolerance("update", DType::kF32), "master");
}

TEST_P(Update, Sgd) {
  const ops::Sgd rule = {.momentum = 0.9f, .weight_decay = 0.1f};
  Values p = testing::values_of(master), v(kCount, 0.0);
  const Tensor velocity = testing::make_zeros(ctx, {kCount}, DType::kF32);
  for (int step = 0; step < 3; ++step) {
    ops::sgd_step(ctx, rule, master, gradient_t, velocity, weights);
    for (std::size_t i = 0; i < p.size(); ++i) {
      v[i] = 0.9f * v[i] + gradient[i] * 0.125;
      p[i] -= 0.01f * (v[i] + 0.1f * p[i]);
    }
  }
  testing::expect_close(master, p, testing::tolerance("update", DType::kF32), "master");
  testing::expect_close(velocity, v, testing::tolerance("update", DType::kF32), "velocity");
  ops::sgd_step(ctx, {}, master, gradient_t, Tensor(), weights);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] -= 0.01f * gradient[i] * 0.125;
  testing::expect_close(master, p, testing::tolerance("update", DType::kF32), "without momentum");
  testing::expect_close(weights, testing::rounded(testing::values_of(master), dtype()), 0.0,
                        "weights");
}

TEST_P(Update, Lion) {
  const ops::Lion rule = {.beta1 = 0.9f, .beta2 = 0.99f, .weight_decay = 0.1f};
  Values p = testing::values_of(master), m = testing::values_of(exp_avg), g = gradient;
  g[5] = 0.0;  // with no average: the sign is 0, and the weight decays alone
  m[5] = 0.0;
  const Tensor average = fp32(m), with_zero = fp32(g);
  for (int step = 0; step < 3; ++step) {
    ops::lion_step(ctx, rule, master, with_zero, average, weights);
    for (std::size_t i = 0; i < p.size(); ++i) {
      const double scaled = g[i] * 0.125, u = 0.9f * m[i] + (1.0 - 0.9f) * scaled;
      p[i] -= 0.01f * ((u > 0.0) - (u < 0.0) + 0.1f * p[i]);
      m[i] = 0.99f * m[i] + (1.0 - 0.99f) * scaled;
    }
  }
  testing::expect_close(master, p, testing::tolerance("update", DType::kF32), "master");
  testing::expect_close(average, m, testing::tolerance("update", DType::kF32), "exp_avg");
  testing::expect_close(weights, testing::rounded(testing::values_of(master), dtype()), 0.0,
                        "weights");
}

TEST_P(Update, AverageGradient) {
  for (const bool nesterov : {false, true}) {
    const ops::Momentum rule = {.momentum = 0.95f, .nesterov = nesterov};
    Values m = testing::values_of(exp_avg), d(kCount);
    const Tensor average = fp32(m), direction = output({kCount});
    for (std::size_t i = 0; i < m.size(); ++i) {
      const double g = gradient[i] * 0.125;
      m[i] = 0.95f * m[i] + (1.0 - 0.95f) * g;
      d[i] = nesterov ? 0.95f * m[i] + (1.0 - 0.95f) * g : m[i];
    }
    ops::average_gradient(ctx, rule, gradient_t, average, direction);
    testing::expect_close(average, m, testing::tolerance("update", DType::kF32), "average");
    testing::expect_close(direction, d, testing::tolerance("update", dtype()), "direction");
    const Tensor again = fp32(testing::values_of(exp_avg)), in_place = fp32(gradient);
    ops::average_gradient(ctx, rule, in_place, again, in_place);
    EXPECT_EQ(testing::bits_of(again), testing::bits_of(average));
    testing::expect_close(in_place, d, testing::tolerance("update", DType::kF32), "in place");
  }
}

TEST_P(Update, StepAlong) {
  const ops::StepAlong rule = {.weight_decay = 0.1f, .rate = 2.0f};
  const Values d = testing::rounded(testing::random_values(7, kCount), dtype());
  Values p = testing::values_of(master);
  ops::step_along(ctx, rule, master, testing::make_tensor(ctx, d, {kCount}, dtype()), weights);
  for (std::size_t i = 0; i < p.size(); ++i) p[i] -= 0.01f * 2.0 * (d[i] + 0.1f * p[i]);
  testing::expect_close(master, p, testing::tolerance("update", DType::kF32), "master");
  testing::expect_close(weights, testing::rounded(testing::values_of(master), dtype()), 0.0,
                        "weights");
}

TEST_P(Update, DivideByRoot) {
  const Tensor limbs = no_squares(), y = output({kCount});
  const Tensor sum = testing::make_zeros(ctx, {1}, DType::kF64);
  ops::add_sum_of_squares(ctx, testing::make_tensor(ctx, {2.5}, {1}, DType::kF32), 0, limbs);
  ops::round_exact_sum(ctx, limbs, sum);
  Values expected = gradient;
  for (double& value : expected) value /= 2.5 + 0.25;
  ops::divide_by_root(ctx, gradient_t, sum, 0.25f, y);
  testing::expect_close(y, expected, testing::tolerance("update", dtype()), "y");
  ops::divide_by_root(ctx, gradient_t, sum, 0.25f, gradient_t);
  testing::expect_close(gradient_t, expected, testing::tolerance("update", DType::kF32), "x");
}

// A rule's factor on the learning rate.
TEST_P(Update, Rate) {
  const auto stepped = [&](float learning_rate, float rate) {
    state.learning_rate = learning_rate;
    set(state);
    std::string bits;
    const auto fresh = [&] { return fp32(testing::values_of(master)); };
    for (int rule = 0; rule < 3; ++rule) {
      const Tensor p = fresh(), m = fp32(testing::values_of(exp_avg)),
                   v = fp32(testing::values_of(exp_avg_sq));
      if (rule == 0) {
        ops::adamw_step(ctx, {.weight_decay = 0.1f, .rate = rate}, p, gradient_t, m, v, weights);
      } else if (rule == 1) {
        ops::sgd_step(ctx, {.momentum = 0.9f, .weight_decay = 0.1f, .rate = rate}, p, gradient_t, m,
                      weights);
      } else {
        ops::lion_step(ctx, {.weight_decay = 0.1f, .rate = rate}, p, gradient_t, m, weights);
      }
      bits += testing::bits_of(p);
    }
    return bits;
  };
  EXPECT_EQ(stepped(0.01f, 2.0f), stepped(0.02f, 1.0f));
}

TEST_P(Update, WeightsMayBeTheMaster) {
  const Tensor copy = fp32(testing::values_of(master));
  const Tensor m = fp32(testing::values_of(exp_avg)), v = fp32(testing::values_of(exp_avg_sq));
  ops::adamw_step(ctx, {}, master, gradient_t, exp_avg, exp_avg_sq, weights);
  ctx.threads = 1;
  ops::adamw_step(ctx, {}, copy, gradient_t, m, v, copy);
  EXPECT_EQ(testing::bits_of(copy), testing::bits_of(master));
}

// Fp32 values in two halves.
struct Halves {
  Tensor high, low;

  Halves(ops::Context& ctx, const Tensor& values)
      : high(ctx.allocate(values.shape(), DType::kBF16)),
        low(ctx.allocate(values.shape(), DType::kU16)) {
    ops::split(ctx, values, high, low);
  }
  Tensor joined(ops::Context& ctx) const {
    const Tensor values = ctx.allocate(high.shape(), DType::kF32);
    ops::join(ctx, high, low, values);
    return values;
  }
  Halves from(std::int64_t begin) const {
    Halves part = *this;
    part.high = high.flat_range(begin, high.elements());
    part.low = low.flat_range(begin, low.elements());
    return part;
  }
};

// Split master values have the bits of those in fp32, wherever a shard begins, and so has what
// else a rule writes. The weights are those of the other way but at ties.
TEST_P(Update, SplitMastersHaveTheSameBits) {
  if (dtype() != DType::kBF16) return;
  Values values = testing::rounded(testing::values_of(master), DType::kF32);
  for (std::size_t i = 0; i < 64; ++i) values[i] = (1.0 + 0x1p-8 * static_cast<double>(i));
  const Tensor ties = fp32(values), zeros = fp32(Values(kCount, 0.0));
  const Tensor d = testing::make_tensor(ctx, testing::random_values(7, kCount), {kCount}, dtype());
  const Tensor three = testing::make_tensor(ctx, {3.0}, {1}, DType::kF32);
  const auto step = [&](int rule, const Tensor& p, const Tensor& w, const Tensor& m,
                        const Tensor& v, std::int64_t begin) {
    const auto part = [&](const Tensor& x) { return x.flat_range(begin, kCount); };
    const Tensor g = part(rule == 5 ? zeros : gradient_t);
    if (rule == 0 || rule == 5) {
      ops::adamw_step(ctx, {.weight_decay = rule == 5 ? 0.0f : 0.1f}, p, g, part(m), part(v), w);
    }
    if (rule == 1) ops::sgd_step(ctx, {.momentum = 0.9f}, p, g, part(m), w);
    if (rule == 2) ops::sgd_step(ctx, {.weight_decay = 0.1f}, p, g, Tensor(), w, three);
    if (rule == 3) ops::lion_step(ctx, {.weight_decay = 0.1f}, p, g, part(m), w);
    if (rule == 4) ops::step_along(ctx, {.weight_decay = 0.1f}, p, part(d), w);
  };
  for (int rule = 0; rule < 6; ++rule) {
    for (const std::int64_t begin : {0, 3, 16, 16384 + 70}) {
      const auto fresh = [&](const Tensor& x) {
        return fp32(rule == 5 ? Values(kCount, 0.0) : testing::values_of(x));
      };
      const Tensor p = fp32(testing::values_of(ties)), w = output({kCount});
      const Tensor m = fresh(exp_avg), v = fresh(exp_avg_sq), m2 = fresh(exp_avg),
                   v2 = fresh(exp_avg_sq);
      const Halves all(ctx, p), halves = all.from(begin);
      for (int i = 0; i < 2; ++i) {
        step(rule, p.flat_range(begin, kCount), w.flat_range(begin, kCount), m, v, begin);
        step(rule, halves.low, halves.high, m2, v2, begin);
      }
#ifdef __SANITIZE_ADDRESS__
      continue;  // the ends of its loops round otherwise than their middles
#endif
      EXPECT_EQ(testing::bits_of(all.joined(ctx)), testing::bits_of(p)) << rule << ", " << begin;
      EXPECT_EQ(testing::bits_of(m2), testing::bits_of(m));
      EXPECT_EQ(testing::bits_of(v2), testing::bits_of(v));
      const Values now = testing::values_of(p), even = testing::values_of(w),
                   away = testing::values_of(all.high);
      int ties_seen = 0;
      for (auto i = static_cast<std::size_t>(begin); i < now.size(); ++i) {
        const SplitFloat expected(static_cast<float>(now[i]));
        const BFloat16 rounded(static_cast<float>(now[i]));
        const double both[] = {static_cast<float>(SplitFloat(expected.high, 0)),
                               static_cast<float>(rounded)};
        ties_seen += both[0] != both[1] ? 1 : 0;
        ASSERT_EQ(away[i], both[0]) << rule << ", " << i;
        ASSERT_EQ(even[i], both[1]) << rule << ", " << i;
      }
      EXPECT_TRUE(rule != 5 || begin > 16 || ties_seen > 10) << "the last rule leaves the ties";
    }
  }
}

// Parts whose master values are split go together with those that are not.
TEST_P(Update, AdamWOfSplitPartsBesideOthers) {
  if (dtype() != DType::kBF16) return;
  const Tensor p = fp32(testing::values_of(master)), m = fp32(testing::values_of(exp_avg)),
               v = fp32(testing::values_of(exp_avg_sq));
  const Halves halves(ctx, master);
  ops::adamw_step(ctx, {}, p, gradient_t, m, v, output({kCount}));
  std::vector<ops::AdamWPart> parts;
  const Tensor others = fp32(testing::values_of(master));
  for (std::int64_t begin = 0; begin < kCount; begin += 1000) {
    const auto part = [&](const Tensor& x) {
      return x.flat_range(begin, std::min(begin + 1000, kCount));
    };
    const bool split = begin / 1000 % 3 != 1;
    parts.push_back({{},
                     part(split ? halves.low : others),
                     part(gradient_t),
                     part(exp_avg),
                     part(exp_avg_sq),
                     part(halves.high)});
  }
  ops::adamw_step(ctx, parts);
  const std::vector<double> expected = testing::values_of(p);
  const Values joined = testing::values_of(halves.joined(ctx)), plain = testing::values_of(others);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    ASSERT_EQ(i / 1000 % 3 != 1 ? joined[i] : plain[i], expected[i]) << i;
  }
  EXPECT_EQ(testing::bits_of(exp_avg), testing::bits_of(m));
}

// Every upper half with lower ones of all kinds: NaN, infinity, zeros, the largest and the least.
// split_float_test has all values.
TEST_P(Update, SplittingIsExactOnTheDevice) {
  std::vector<float> values;
  for (std::uint32_t upper = 0; upper < 0x10000u; ++upper) {
    for (const std::uint32_t rest : {0x0u, 0x1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu, 0x1234u}) {
      if (rest == 0x1234u && upper % 5 != 0) continue;
      values.push_back(std::bit_cast<float>(upper << 16 | rest));
    }
  }
  const auto n = static_cast<std::int64_t>(values.size());
  for (const std::int64_t begin : {0, 5}) {
    const Tensor x = ctx.allocate({n}, DType::kF32);
    testing::upload(ctx, values.data(), x);
    const Tensor from = x.flat_range(begin, n);
    const Halves halves(ctx, from);
    const std::string high = testing::bits_of(halves.high), low = testing::bits_of(halves.low),
                      joined = testing::bits_of(halves.joined(ctx));
    for (std::size_t i = 0; i < high.size() / 2; ++i) {
      const SplitFloat expected(values[i + static_cast<std::size_t>(begin)]);
      const auto back = static_cast<float>(expected);
      ASSERT_EQ(std::memcmp(&high[2 * i], &expected.high, 2), 0) << i;
      ASSERT_EQ(std::memcmp(&low[2 * i], &expected.low, 2), 0) << i;
      ASSERT_EQ(std::memcmp(&joined[4 * i], &back, 4), 0) << i;
    }
  }
}

TEST_P(Update, RefusesSplitMastersThatDoNotFit) {
  const Halves halves(ctx, master);
  const auto& [high, low] = halves;
  const Tensor three = low.flat_range(0, 3), wide = fp32(testing::values_of(master));
  EXPECT_THROW(ops::adamw_step(ctx, {}, low, gradient_t, exp_avg, exp_avg_sq, wide), InternalError);
  EXPECT_THROW(ops::sgd_step(ctx, {}, three, gradient_t, Tensor(), high), InternalError);
  EXPECT_THROW(ops::step_along(ctx, {}, three, gradient_t, high), InternalError);
  EXPECT_THROW(ops::adamw_direction(ctx, {}, low, gradient_t, exp_avg, exp_avg_sq, wide),
               InternalError);
  EXPECT_THROW(ops::schedule_free_step(ctx, {}, low, gradient_t, exp_avg, exp_avg_sq, high),
               InternalError);
  EXPECT_THROW(ops::split(ctx, wide, high, three), InternalError);
  EXPECT_THROW(ops::split(ctx, wide, wide, low), InternalError);
  EXPECT_THROW(ops::join(ctx, high, high, wide), InternalError);
}

TEST_P(Update, NotFiniteChangesNothing) {
  state.finite = 0;
  set(state);
  const std::string before = testing::bits_of(master) + testing::bits_of(exp_avg) +
                             testing::bits_of(exp_avg_sq) + testing::bits_of(weights);
  ops::adamw_step(ctx, {}, master, gradient_t, exp_avg, exp_avg_sq, weights);
  ops::sgd_step(ctx, {.momentum = 0.9f}, master, gradient_t, exp_avg, weights);
  ops::lion_step(ctx, {}, master, gradient_t, exp_avg, weights);
  const Tensor direction = output({kCount});
  ops::average_gradient(ctx, {}, gradient_t, exp_avg, direction);
  EXPECT_EQ(testing::values_of(direction), Values(kCount, 0.0));
  ops::step_along(ctx, {}, master, gradient_t, weights);
  const Halves halves(ctx, master);
  ops::adamw_step(ctx, {}, halves.low, gradient_t, exp_avg, exp_avg_sq, halves.high);
  ops::step_along(ctx, {}, halves.low, gradient_t, halves.high);
  EXPECT_EQ(testing::bits_of(halves.joined(ctx)), testing::bits_of(master));
  EXPECT_EQ(testing::bits_of(master) + testing::bits_of(exp_avg) + testing::bits_of(exp_avg_sq) +
                testing::bits_of(weights),
            before);
}

// Parts that are cut at units, in any order, give the same bits.
TEST_P(Update, SumsOfSquaresHaveNoOrder) {
  constexpr std::int64_t kUnit = ops::kSquaresUnit;
  for (const std::int64_t first : {std::int64_t{0}, std::int64_t{100}, 3 * kUnit + 255}) {
    const double whole = sum_of_squares(gradient_t, first);
    for (const std::int64_t units : {1, 5, 40}) {
      std::vector<std::int64_t> cuts{0};
      for (std::int64_t at = units * kUnit - first % kUnit; at < kCount; at += units * kUnit) {
        cuts.push_back(at);
      }
      cuts.push_back(kCount);
      const Tensor limbs = no_squares();
      for (std::size_t i = cuts.size() - 1; i > 0; --i) {
        ops::add_sum_of_squares(ctx, gradient_t.flat_range(cuts[i - 1], cuts[i]),
                                first + cuts[i - 1], limbs);
      }
      EXPECT_EQ(rounded_sum(limbs), whole) << first << ", " << units;
    }
  }
}

// Any number of parts of any size, at any place.
TEST_P(Update, SumsOfSquaresOfManyParts) {
  for (const int most : {1, 3, 119, 120, 121, 300}) {
    std::vector<ops::SquaresPart> parts;
    const Tensor alone = no_squares(), together = no_squares();
    std::int64_t at = 0;
    for (int i = 0; i < most && at < kCount; ++i) {
      const std::int64_t sizes[] = {256, 1, 0, 255, 30, 513};
      const std::int64_t end = std::min(kCount, at + sizes[i % 6] / (i < 30 ? 1 : 8));
      parts.push_back({gradient_t.flat_range(at, end), 37 * i});
      ops::add_sum_of_squares(ctx, parts.back().x, 37 * i, alone);
      at = end + i % 2;
    }
    ASSERT_EQ(parts.size(), static_cast<std::size_t>(most));
    ops::add_sum_of_squares(ctx, parts, together);
    EXPECT_EQ(rounded_sum(together), rounded_sum(alone)) << most;
  }
  const Tensor limbs = no_squares();
  ops::add_sum_of_squares(ctx, std::span<const ops::SquaresPart>(), limbs);
  EXPECT_EQ(rounded_sum(limbs), 0.0);
}

TEST_P(Update, SumOfSquares) {
  const double expected = testing::inner_product(gradient, gradient);
  const double sum = sum_of_squares(gradient_t);
  EXPECT_NEAR(sum, expected, 1e-12 * expected);
  for (const int threads : {1, 3}) {
    ctx.threads = threads;
    EXPECT_EQ(sum_of_squares(gradient_t), sum);
  }
  for (const std::int64_t at : {std::int64_t{0}, std::int64_t{16384}, kCount - 1}) {
    for (const float bad :
         {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      Values x_values = gradient;
      x_values[static_cast<std::size_t>(at)] = static_cast<double>(bad);
      const Tensor x = fp32(x_values);
      EXPECT_FALSE(std::isfinite(sum_of_squares(x))) << at;
    }
  }
  const Tensor large = testing::make_tensor(ctx, {3e38, 3e38}, {2}, DType::kF32);
  EXPECT_TRUE(std::isfinite(sum_of_squares(large)));  // in double
}

TEST_P(Update, GradientNormClipsAndFlags) {
  state.gradient_scale = 0.5f;
  set(state);
  double norm = 0.0;
  const auto finish = [&](double sum, float clip) {
    const Tensor norm_t = testing::make_zeros(ctx, {1}, DType::kF64);
    ops::finish_gradient_norm(ctx, testing::make_tensor(ctx, sum), clip, norm_t);
    norm = testing::values_of(norm_t)[0];
    return ops::read_step_state(ctx);
  };
  EXPECT_EQ(finish(64.0, 1.0f).clip_factor, 0.25f);
  EXPECT_EQ(norm, 4.0);
  EXPECT_EQ(finish(64.0, 1.0f).finite, 1);
  EXPECT_EQ(ops::read_step_state(ctx).updates, 3 + 2);  // what the optimizer does next is counted
  EXPECT_EQ(finish(64.0, 5.0f).clip_factor, 1.0f);      // below the limit
  EXPECT_EQ(finish(64.0, 0.0f).clip_factor, 1.0f);      // no limit
  for (const double bad :
       {std::numeric_limits<double>::quiet_NaN(), std::numeric_limits<double>::infinity()}) {
    const std::int64_t updates = ops::read_step_state(ctx).updates;
    EXPECT_EQ(finish(bad, 1.0f).finite, 0);
    EXPECT_EQ(ops::read_step_state(ctx).updates, updates);
  }
  EXPECT_EQ(finish(4.0, 1.0f).finite, 1);  // the flag is that of this step
}

// Scaled gradients under the same scale are the same step, to the bit for a power of two.
TEST_P(Update, DividesByTheLossScale) {
  const Tensor copy = fp32(testing::values_of(master)), other = output({kCount});
  const Tensor m = fp32(testing::values_of(exp_avg)), v = fp32(testing::values_of(exp_avg_sq));
  ops::adamw_step(ctx, {}, master, gradient_t, exp_avg, exp_avg_sq, weights);
  ops::sgd_step(ctx, {}, master, gradient_t, Tensor(), weights);
  state.loss_scale = 4096.0f;
  set(state);
  Values scaled = gradient;
  for (double& value : scaled) value *= 4096.0;
  ops::adamw_step(ctx, {}, copy, fp32(scaled), m, v, other);
  ops::sgd_step(ctx, {}, copy, fp32(scaled), Tensor(), other);
  EXPECT_EQ(testing::bits_of(copy), testing::bits_of(master));
  EXPECT_EQ(testing::bits_of(other), testing::bits_of(weights));
  const Tensor norm = testing::make_zeros(ctx, {1}, DType::kF64);
  ops::finish_gradient_norm(ctx, testing::make_tensor(ctx, 64.0 * 4096 * 4096), 1.0f, norm);
  EXPECT_EQ(testing::values_of(norm)[0], 2.0);  // gradient_scale is 1/4
  EXPECT_EQ(ops::read_step_state(ctx).clip_factor, 0.5f);
}

TEST_P(Update, LossScaleIsHalvedOnOverflowAndDoubledAfterGoodSteps) {
  const ops::LossScaling rule = {.initial = 8, .smallest = 2, .largest = 16, .interval = 3};
  state.loss_scale = 8;
  set(state);
  const auto after = [&](std::vector<int> steps) {
    for (const int finite : steps) {
      ops::StepState now = ops::read_step_state(ctx);
      now.finite = finite;
      set(now);
      ops::update_loss_scale(ctx, rule);
    }
    return ops::read_step_state(ctx).loss_scale;
  };
  EXPECT_EQ(after({1, 1}), 8.0f);
  EXPECT_EQ(after({0}), 4.0f);  // and the count begins anew
  EXPECT_EQ(after({1, 1}), 4.0f);
  EXPECT_EQ(after({1}), 8.0f);
  EXPECT_EQ(after({1, 1, 1, 1, 1, 1}), 16.0f);  // not above the largest
  EXPECT_EQ(after({0, 0, 0, 0, 0}), 2.0f);      // not below the smallest
  EXPECT_EQ(ops::read_step_state(ctx).good_steps, 0);
  ops::write_step_inputs(ctx, {.step = 9, .random_key = 3, .learning_rate = 0.5f});
  const ops::StepState left = ops::read_step_state(ctx);
  EXPECT_EQ(left.loss_scale, 2.0f);  // the host brings a step's inputs, and leaves the scale alone
  EXPECT_EQ(left.step, 9);
  EXPECT_EQ(left.random_key, 3u);
  EXPECT_EQ(left.learning_rate, 0.5f);
  EXPECT_EQ(left.gradient_scale, 1.0f);
  set({.loss_scale = 7.0f, .finite = 0});
  ops::update_loss_scale(ctx, ops::LossScaling::fixed(7.0f));
  EXPECT_EQ(ops::read_step_state(ctx).loss_scale, 7.0f);
  EXPECT_THROW(ops::update_loss_scale(ctx, {.smallest = 0.0f}), InternalError);
}

TEST_P(Update, WhatFewBitsLoseFollowsTheLossScale) {
  const ops::LossScaling rule = {.initial = 8, .smallest = 2, .largest = 16, .interval = 2};
  const auto after = [&](const ops::StepState& step) {
    set(step);
    const Tensor x = testing::make_tensor(ctx, testing::Values(5000, 3.0), {5000}, DType::kF32);
    ops::carry_over(ctx, rule, x);
    EXPECT_EQ(ops::read_step_state(ctx).loss_scale, step.loss_scale);
    const testing::Values values = testing::values_of(x);
    EXPECT_EQ(values.front(), values.back());
    return values[0];
  };
  EXPECT_EQ(after({.loss_scale = 8.0f}), 3.0);
  EXPECT_EQ(after({.loss_scale = 8.0f, .good_steps = 1}), 6.0);
  EXPECT_EQ(after({.loss_scale = 16.0f, .good_steps = 1}), 3.0);
  EXPECT_EQ(after({.loss_scale = 8.0f, .finite = 0}), 0.0);
}

TEST_P(Update, StateIsCommittedUnlessTheStepIsSkipped) {
  constexpr std::int64_t kFew = 300;
  const Values old = testing::rounded(testing::random_values(1, kFew), DType::kF32);
  const Values more = testing::rounded(testing::random_values(2, kFew), DType::kF32);
  for (const bool finite : {true, false}) {
    const Tensor value = testing::make_tensor(ctx, old, {kFew}, DType::kF32);
    const Tensor proposed = testing::make_tensor(ctx, more, {kFew}, DType::kF32);
    set({.finite = finite ? 1 : 0});
    ops::commit_state(ctx, 0.75f, proposed, value);
    Values expected = old;
    for (std::size_t i = 0; finite && i < old.size(); ++i) expected[i] = 0.75 * old[i] + more[i];
    testing::expect_close(value, expected, 1e-6, "value");
    EXPECT_EQ(testing::values_of(proposed), Values(kFew, 0.0));
  }
}

TEST_P(Update, RefusesWhatDoesNotFit) {
  const Tensor part = master.flat_range(0, 3);
  EXPECT_THROW(ops::adamw_step(ctx, {}, master, part, exp_avg, exp_avg_sq, weights), InternalError);
  EXPECT_THROW(ops::adamw_step(ctx, {}, master, gradient_t, exp_avg, part, weights), InternalError);
  EXPECT_THROW(ops::adamw_step(ctx, {}, master, gradient_t, exp_avg, exp_avg_sq, part),
               InternalError);
  EXPECT_THROW(ops::sgd_step(ctx, {.momentum = 0.9f}, master, gradient_t, Tensor(), weights),
               InternalError);
  EXPECT_THROW(ops::sgd_step(ctx, {.nesterov = true}, master, gradient_t, exp_avg, weights),
               InternalError);
  EXPECT_THROW(ops::lion_step(ctx, {}, master, gradient_t, part, weights), InternalError);
  EXPECT_THROW(ops::commit_state(ctx, 0.5f, part, master), InternalError);
  EXPECT_THROW(sum_of_squares(testing::make_zeros(ctx, {3}, DType::kBF16)), InternalError);
  if (ctx.device.kind == DeviceKind::kCpu) {  // elsewhere the host does not see it
    state.updates = 0;
    set(state);
    EXPECT_THROW(ops::adamw_step(ctx, {}, master, gradient_t, exp_avg, exp_avg_sq, weights),
                 InternalError);
  }
  ctx.step_state = nullptr;
  EXPECT_THROW(ops::sgd_step(ctx, {}, master, gradient_t, Tensor(), weights), InternalError);
}

TRIREME_FOR_EACH_DTYPE(Update);

}  // namespace
}  // namespace trireme
