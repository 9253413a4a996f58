#include <cmath>
#include <string>
#include <utility>

#include "trireme/ops/batch_norm.h"

#include "support/ops_reference.h"

namespace trireme {
namespace {

using testing::Values;

constexpr double kEpsilon = 1e-3;

class BatchNorms : public testing::OpsTest {
 protected:
  // More rows than one part or one block has; some columns in whole vectors and some not.
  static constexpr std::int64_t kRows = 300, kColumns = 45;
  const Values x = random(1, kRows*kColumns, 2.0), weight = random(2, kColumns),
               bias = random(3, kColumns), dy = random(4, kRows*kColumns),
               residual = random(5, kRows*kColumns);
  const Shape shape = {kRows, kColumns};
  const Tensor x_t = tensor(x, shape), weight_t = tensor(weight, {kColumns}),
               bias_t = tensor(bias, {kColumns}), dy_t = tensor(dy, shape),
               residual_t = tensor(residual, shape);
  const Tensor moments = testing::make_output(ctx, {2, kColumns}, DType::kF32);
  const Tensor sums = testing::make_output(ctx, {2, kColumns}, DType::kF32);
  const Tensor y = output(shape), dx = output(shape);

  ops::BatchNorm norm(const ops::Clamp& clamp) const {
    return {moments, weight_t, bias_t, static_cast<float>(kEpsilon), clamp};
  }
  double tolerance(const std::string& op) const { return testing::tolerance(op, dtype()); }
};

constexpr ops::Clamp kClamps[] = {ops::kNoClamp, ops::kRelu, {0.0f, 1.0f}};

TEST_P(BatchNorms, MomentsOfColumns) {
  ops::batch_moments(ctx, x_t, moments);
  testing::expect_close(moments, testing::reference::batch_moments(x, kColumns),
                        tolerance("batch_norm_saved"), "moments");
}

TEST_P(BatchNorms, ALargeMeanDoesNotCancel) {
  Values shifted = x;
  for (double& value : shifted) value += 512.0;
  shifted = testing::rounded(shifted, dtype());
  ops::batch_moments(ctx, tensor(shifted, shape), moments);
  const Values expected = testing::reference::batch_moments(shifted, kColumns);
  const Values got = testing::values_of(moments);
  for (std::size_t c = 0; c < kColumns; ++c) {
    EXPECT_NEAR(got[kColumns + c], expected[kColumns + c], 1e-4 * expected[kColumns + c]) << c;
  }
}

// In fp32 a sum of squares would keep no digit of this variance.
TEST_P(BatchNorms, ALargeOffsetKeepsTheVariance) {
  if (dtype() != DType::kF32) GTEST_SKIP() << "16 bits keep no deviation at this offset";
  constexpr std::int64_t kMany = 6000, kFew = 5;
  Values shifted = random(1, kMany * kFew);
  for (double& value : shifted) value += 1e4;
  // A first value far from the others, as at the border of a picture.
  shifted[2] = 0.0;
  shifted = testing::rounded(shifted, dtype());
  const Tensor few = testing::make_output(ctx, {2, kFew}, DType::kF32);
  ops::batch_moments(ctx, tensor(shifted, {kMany, kFew}), few);
  const Values expected = testing::reference::batch_moments(shifted, kFew);
  const Values got = testing::values_of(few);
  // A CPU merges means that were rounded at this offset; a GPU takes the first row off them before.
  const double deviation = ctx.device.kind == DeviceKind::kCpu ? 2e-4 : 1e-5;
  for (std::size_t c = 0; c < kFew; ++c) {
    EXPECT_NEAR(got[c], expected[c], 1e-6 * expected[c]) << c;
    EXPECT_NEAR(got[kFew + c], expected[kFew + c], deviation * expected[kFew + c]) << c;
  }
}

// One row, several parts of the rows, several groups of columns, chunks that are not whole.
constexpr std::pair<std::int64_t, std::int64_t> kExtents[] = {
    {1, 1}, {1, 264}, {2, 8}, {37, 3}, {5000, 3}, {1300, 16}, {700, 144}, {131, 1280}, {90, 1285}};

TEST_P(BatchNorms, AnyExtents) {
  for (const auto& [rows, columns] : kExtents) {
    const std::string name = std::to_string(rows) + " x " + std::to_string(columns);
    const Values in = random(1, rows * columns), w = random(2, columns), b = random(3, columns);
    const Values d = random(4, rows * columns);
    const Tensor in_t = tensor(in, {rows, columns}), d_t = tensor(d, {rows, columns});
    const Tensor of_in = testing::make_output(ctx, {2, columns}, DType::kF32);
    const Tensor both = testing::make_output(ctx, {2, columns}, DType::kF32);
    ops::batch_moments(ctx, in_t, of_in);
    const Values m = testing::reference::batch_moments(in, columns);
    testing::expect_close(of_in, m, tolerance("batch_norm_saved"), name);
    for (const bool adds : {false, true}) {
      const ops::BatchNorm relu{of_in, tensor(w, {columns}), tensor(b, {columns}),
                                static_cast<float>(kEpsilon), ops::kRelu};
      const Tensor out = output({rows, columns});
      ops::batch_norm(ctx, relu, in_t, adds ? d_t : Tensor(), out);
      ops::batch_norm_backward_sums(ctx, relu, d_t, in_t, adds ? out : Tensor(), both);
      const Values made = testing::values_of(out);
      Values expected(static_cast<std::size_t>(2 * columns), 0.0);
      for (std::size_t i = 0; i < in.size(); ++i) {
        const std::size_t c = i % static_cast<std::size_t>(columns), n = expected.size() / 2;
        if (made[i] <= 0.0) continue;
        expected[c] += d[i];
        expected[n + c] += d[i] * (in[i] - m[c]) / std::sqrt(m[n + c] + kEpsilon);
      }
      testing::expect_close(both, expected, tolerance("batch_norm_sums"), name);
    }
  }
}

// Whichever block ends last.
TEST_P(BatchNorms, SumsDoNotFollowTheOrderOfBlocks) {
  for (const auto& [rows, columns] : kExtents) {
    const Tensor in = tensor(random(1, rows * columns), {rows, columns});
    const Tensor d = tensor(random(4, rows * columns), {rows, columns});
    const Tensor w = tensor(random(2, columns), {columns});
    const Tensor of_in = testing::make_output(ctx, {2, columns}, DType::kF32);
    const Tensor both = testing::make_output(ctx, {2, columns}, DType::kF32);
    const ops::BatchNorm relu{of_in, w, w, static_cast<float>(kEpsilon), ops::kRelu};
    std::string bits;
    for (const std::uint64_t seed : {0, 1, 2, 3, 4}) {
      testing::draw_order(seed);
      ops::batch_moments(ctx, in, of_in);
      ops::batch_norm_backward_sums(ctx, relu, d, in, Tensor(), both);
      const std::string now = testing::bits_of(of_in) + testing::bits_of(both);
      if (!bits.empty()) {
        EXPECT_EQ(now, bits) << rows << " x " << columns << ", seed " << seed;
      }
      bits = now;
    }
  }
}

// The rows in three parts, as three ranks have them.
TEST_P(BatchNorms, MomentsOfPartsMerge) {
  constexpr std::int64_t kPart = kRows / 3;
  const Tensor parts = testing::make_output(ctx, {3, 2, kColumns}, DType::kF32);
  for (std::int64_t part = 0; part < 3; ++part) {
    ops::batch_moments(ctx, x_t.rows(part * kPart, (part + 1) * kPart),
                       parts.rows(part, part + 1).reshape({2, kColumns}));
  }
  ops::merge_batch_moments(ctx, parts, moments);
  testing::expect_close(moments, testing::reference::batch_moments(x, kColumns),
                        tolerance("batch_norm_saved"), "moments");
}

TEST_P(BatchNorms, NormalizesAndClamps) {
  ops::batch_moments(ctx, x_t, moments);
  const Values of_x = testing::reference::batch_moments(x, kColumns);
  for (const ops::Clamp& clamp : kClamps) {
    ops::batch_norm(ctx, norm(clamp), x_t, Tensor(), y);
    testing::expect_close(
        y, testing::reference::batch_norm(x, of_x, weight, bias, kEpsilon, {}, clamp),
        tolerance("batch_norm"), "y");
    ops::batch_norm(ctx, norm(clamp), x_t, residual_t, y);
    testing::expect_close(
        y, testing::reference::batch_norm(x, of_x, weight, bias, kEpsilon, residual, clamp),
        tolerance("batch_norm"), "y with a residual");
  }
  // It works in place, with moments that are not those of x, as in inference.
  const Values running = random(6, 2 * kColumns);
  Values positive = running;
  for (double& value : positive) value = std::abs(value);
  ops::BatchNorm later = norm(ops::kRelu6);
  later.moments = testing::make_tensor(ctx, positive, {2, kColumns}, DType::kF32);
  const Tensor in_place = tensor(x, shape);
  ops::batch_norm(ctx, later, in_place, Tensor(), in_place);
  testing::expect_close(
      in_place,
      testing::reference::batch_norm(x, positive, weight, bias, kEpsilon, {}, ops::kRelu6),
      tolerance("batch_norm"), "y in place");
}

// Fewer rows: each of some 200 differences goes through all of them.
TEST_P(BatchNorms, Gradients) {
  constexpr std::int64_t kFew = 11, kSome = 19;
  const Shape small = {kFew, kSome};
  const Values in = random(7, kFew * kSome), w = random(8, kSome), b = random(9, kSome);
  const Values d = random(10, kFew * kSome), rest = random(11, kFew * kSome);
  const Tensor in_t = tensor(in, small), d_t = tensor(d, small), rest_t = tensor(rest, small);
  const Tensor of_in = testing::make_output(ctx, {2, kSome}, DType::kF32);
  const Tensor out = output(small), din = output(small), drest = output(small);
  ops::batch_moments(ctx, in_t, of_in);
  const Tensor both = testing::make_output(ctx, {2, kSome}, DType::kF32);
  for (const ops::Clamp& clamp : kClamps) {
    for (const bool adds : {false, true}) {
      const ops::BatchNorm small_norm{of_in, tensor(w, {kSome}), tensor(b, {kSome}),
                                      static_cast<float>(kEpsilon), clamp};
      const auto loss = [&](const Values& v, const Values& weights, const Values& biases,
                            const Values& added) {
        const Values m = testing::reference::batch_moments(v, kSome);
        return testing::inner_product(
            d, testing::reference::batch_norm(v, m, weights, biases, kEpsilon,
                                              adds ? added : Values(), clamp));
      };
      ops::batch_norm(ctx, small_norm, in_t, adds ? rest_t : Tensor(), out);
      const Tensor made = adds ? out : Tensor();
      ops::batch_norm_backward_sums(ctx, small_norm, d_t, in_t, made, both);
      ops::batch_norm_backward(ctx, small_norm, d_t, in_t, made, both, kFew,
                               adds ? drest : Tensor(), din);
      testing::expect_close(
          din,
          testing::finite_differences([&](const Values& v) { return loss(v, w, b, rest); }, in),
          tolerance("batch_norm_backward"), "dx");
      Values expected =
          testing::finite_differences([&](const Values& v) { return loss(in, w, v, rest); }, b);
      const Values of_weight =
          testing::finite_differences([&](const Values& v) { return loss(in, v, b, rest); }, w);
      expected.insert(expected.end(), of_weight.begin(), of_weight.end());
      testing::expect_close(both, expected, tolerance("batch_norm_sums"), "dbias and dweight");
      if (!adds) continue;
      testing::expect_close(
          drest,
          testing::finite_differences([&](const Values& v) { return loss(in, w, b, v); }, rest),
          tolerance("batch_norm_backward"), "dresidual");
    }
  }
}

// Two micro-batches that share their moments and sums have the gradients of one that holds both.
TEST_P(BatchNorms, SharedMomentsGiveTheGradientOfAllRows) {
  ops::batch_moments(ctx, x_t, moments);
  ops::batch_norm_backward_sums(ctx, norm(ops::kRelu), dy_t, x_t, Tensor(), sums);
  ops::batch_norm_backward(ctx, norm(ops::kRelu), dy_t, x_t, Tensor(), sums, kRows, Tensor(), dx);
  const Tensor parts = output(shape);
  for (const auto& [first, end] : {std::pair{0, 120}, std::pair{120, 300}}) {
    ops::batch_norm_backward(ctx, norm(ops::kRelu), dy_t.rows(first, end), x_t.rows(first, end),
                             Tensor(), sums, kRows, Tensor(), parts.rows(first, end));
  }
  EXPECT_EQ(testing::bits_of(parts), testing::bits_of(dx));
}

TEST_P(BatchNorms, GradientsMayTakeThePlaceOfDy) {
  ops::batch_moments(ctx, x_t, moments);
  ops::batch_norm(ctx, norm(ops::kRelu), x_t, residual_t, y);
  const Tensor dresidual = output(shape);
  ops::batch_norm_backward_sums(ctx, norm(ops::kRelu), dy_t, x_t, y, sums);
  ops::batch_norm_backward(ctx, norm(ops::kRelu), dy_t, x_t, y, sums, kRows, dresidual, dx);
  const Tensor once = tensor(dy, shape), twice = tensor(dy, shape), other = output(shape);
  ops::batch_norm_backward(ctx, norm(ops::kRelu), once, x_t, y, sums, kRows, other, once);
  EXPECT_EQ(testing::bits_of(once), testing::bits_of(dx));
  EXPECT_EQ(testing::bits_of(other), testing::bits_of(dresidual));
  ops::batch_norm_backward(ctx, norm(ops::kRelu), twice, x_t, y, sums, kRows, twice, other);
  EXPECT_EQ(testing::bits_of(other), testing::bits_of(dx));
  EXPECT_EQ(testing::bits_of(twice), testing::bits_of(dresidual));
}

TEST_P(BatchNorms, SumsDoNotFollowTheThreads) {
  std::string bits;
  for (const int threads : {1, 2, 7}) {
    ctx.threads = threads;
    ops::batch_moments(ctx, x_t, moments);
    ops::batch_norm_backward_sums(ctx, norm(ops::kRelu), dy_t, x_t, Tensor(), sums);
    ops::batch_norm_backward(ctx, norm(ops::kRelu), dy_t, x_t, Tensor(), sums, kRows, Tensor(), dx);
    const std::string now =
        testing::bits_of(moments) + testing::bits_of(sums) + testing::bits_of(dx);
    if (!bits.empty()) {
      EXPECT_EQ(now, bits) << threads;
    }
    bits = now;
  }
}

TEST_P(BatchNorms, NotANumberStaysInItsColumn) {
  Values bad = x;
  bad[3 * kColumns + 7] = std::numeric_limits<double>::quiet_NaN();
  ops::batch_moments(ctx, tensor(bad, shape), moments);
  ops::batch_norm(ctx, norm(ops::kRelu6), tensor(bad, shape), Tensor(), y);
  const Values values = testing::values_of(y);
  EXPECT_TRUE(std::isnan(values[7]));
  EXPECT_FALSE(std::isnan(values[6]) || std::isnan(values[8]));
}

TEST_P(BatchNorms, RefusesWhatDoesNotFit) {
  const auto refuses = [&](const auto& call) { EXPECT_THROW(call(), InternalError); };
  const Tensor few = x_t.rows(0, 3), narrow = output({kRows, kColumns - 1});
  refuses([&] { ops::batch_moments(ctx, narrow, moments); });
  refuses([&] { ops::batch_moments(ctx, x_t.rows(0, 0), moments); });
  refuses([&] { ops::batch_norm(ctx, norm({}), narrow, {}, narrow); });
  refuses([&] { ops::batch_norm(ctx, norm({}), x_t, few, y); });
  refuses([&] { ops::batch_norm(ctx, norm({}), x_t, {}, few); });
  refuses([&] { ops::batch_norm_backward_sums(ctx, norm({}), few, x_t, {}, sums); });
  refuses([&] { ops::batch_norm_backward_sums(ctx, norm({}), dy_t, x_t, few, sums); });
  refuses([&] { ops::batch_norm_backward(ctx, norm({}), dy_t, x_t, {}, sums, 3, {}, dx); });
  refuses([&] { ops::batch_norm_backward(ctx, norm({}), dy_t, x_t, {}, sums, kRows, few, dx); });
  ops::BatchNorm wrong = norm({});
  wrong.bias = few;
  refuses([&] { ops::batch_norm(ctx, wrong, x_t, {}, y); });
}

TRIREME_FOR_EACH_DTYPE(BatchNorms);

}  // namespace
}  // namespace trireme
