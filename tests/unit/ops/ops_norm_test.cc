#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include "trireme/ops/elementwise.h"
#include "trireme/ops/norm.h"

#include "support/ops_reference.h"

namespace trireme {
namespace {

using testing::Values;

constexpr float kEpsilon = 1e-5f;

class Norm : public testing::OpsTest {
 protected:
  static constexpr std::int64_t kRows = 37, kColumns = 43;
  const Values x = random(1, kRows*kColumns), weight = random(2, kColumns),
               bias = random(3, kColumns), dy = random(4, kRows*kColumns);
  const Tensor x_t = tensor(x, {kRows, kColumns}), weight_t = tensor(weight, {kColumns}),
               bias_t = tensor(bias, {kColumns}), dy_t = tensor(dy, {kRows, kColumns});
  const Tensor y = output({kRows, kColumns}), dx = output({kRows, kColumns});
  const Tensor mean = testing::make_output(ctx, {kRows}, DType::kF32);
  const Tensor rstd = testing::make_output(ctx, {kRows}, DType::kF32);
  const Tensor dweight = testing::make_zeros(ctx, {kColumns}, DType::kF32);
  const Tensor dbias = testing::make_zeros(ctx, {kColumns}, DType::kF32);

  double tolerance(const std::string& op) const { return testing::tolerance(op, dtype()); }
};

TEST_P(Norm, LayerNorm) {
  ops::layer_norm(ctx, x_t, weight_t, bias_t, kEpsilon, y, mean, rstd);
  testing::expect_close(y, testing::reference::layer_norm(x, weight, bias, kEpsilon),
                        tolerance("norm"), "y");
  Values means(kRows, 0.0);
  for (std::size_t i = 0; i < x.size(); ++i) means[i / kColumns] += x[i] / kColumns;
  testing::expect_close(mean, means, tolerance("norm_saved"), "mean");
  ops::layer_norm(ctx, x_t, weight_t, Tensor(), kEpsilon, y, mean, rstd);
  testing::expect_close(y, testing::reference::layer_norm(x, weight, {}, kEpsilon),
                        tolerance("norm"), "y without bias");
}

TEST_P(Norm, LayerNormGradients) {
  ops::layer_norm(ctx, x_t, weight_t, bias_t, kEpsilon, y, mean, rstd);
  const auto loss = [&](const Values& in, const Values& w, const Values& b) {
    return testing::inner_product(dy, testing::reference::layer_norm(in, w, b, kEpsilon));
  };
  ops::layer_norm_backward_input(ctx, dy_t, x_t, weight_t, mean, rstd, Tensor(), dx);
  testing::expect_close(
      dx, testing::finite_differences([&](const Values& v) { return loss(v, weight, bias); }, x),
      tolerance("norm_backward_input"), "dx");
  ops::layer_norm_backward_weight(ctx, dy_t, x_t, mean, rstd, dweight, dbias);
  testing::expect_close(
      dweight,
      testing::finite_differences([&](const Values& v) { return loss(x, v, bias); }, weight),
      tolerance("norm_backward_weight"), "dweight");
  const Values expected_bias =
      testing::finite_differences([&](const Values& v) { return loss(x, weight, v); }, bias);
  testing::expect_close(dbias, expected_bias, tolerance("norm_backward_weight"), "dbias");
  ops::layer_norm_backward_weight(ctx, dy_t, x_t, mean, rstd, dweight, dbias);
  Values twice = expected_bias;
  for (double& value : twice) value *= 2.0;
  testing::expect_close(dbias, twice, tolerance("norm_backward_weight"), "dbias is added to");
  ops::layer_norm_backward_weight(ctx, dy_t, x_t, mean, rstd, dweight, Tensor());
  const Tensor alone = testing::make_zeros(ctx, {kColumns}, DType::kF32);
  ops::layer_norm_backward_weight(ctx, dy_t, x_t, mean, rstd, Tensor(), alone);
  testing::expect_close(alone, expected_bias, tolerance("norm_backward_weight"), "dbias alone");
  ops::layer_norm_backward(ctx, dy_t, x_t, weight_t, mean, rstd, Tensor(), dx, Tensor(), alone);
  testing::expect_close(alone, twice, tolerance("norm_backward_weight"), "dbias with dx");
}

TEST_P(Norm, RmsNorm) {
  ops::rms_norm(ctx, x_t, weight_t, kEpsilon, y, rstd);
  testing::expect_close(y, testing::reference::rms_norm(x, weight, kEpsilon), tolerance("norm"),
                        "y");
  const auto loss = [&](const Values& in, const Values& w) {
    return testing::inner_product(dy, testing::reference::rms_norm(in, w, kEpsilon));
  };
  ops::rms_norm_backward_input(ctx, dy_t, x_t, weight_t, rstd, Tensor(), dx);
  testing::expect_close(
      dx, testing::finite_differences([&](const Values& v) { return loss(v, weight); }, x),
      tolerance("norm_backward_input"), "dx");
  ops::rms_norm_backward_weight(ctx, dy_t, x_t, rstd, dweight);
  testing::expect_close(
      dweight, testing::finite_differences([&](const Values& v) { return loss(x, v); }, weight),
      tolerance("norm_backward_weight"), "dweight");
}

// A factor of 1 + weight has the bits of that weight, where fp32 holds it; in 16 bits it is more
// exact.
TEST_P(Norm, RmsNormOfAFactorAboveItsWeight) {
  Values sum = weight;
  for (double& value : sum) value += 1.0;
  const ops::NormFactor factor = {weight_t, 1.0f};
  ops::rms_norm(ctx, x_t, factor, kEpsilon, y, rstd);
  testing::expect_close(y, testing::reference::rms_norm(x, sum, kEpsilon), tolerance("norm"), "y");
  const auto loss = [&](const Values& in) {
    return testing::inner_product(dy, testing::reference::rms_norm(in, sum, kEpsilon));
  };
  const Values expected = testing::finite_differences(loss, x);
  ops::rms_norm_backward_input(ctx, dy_t, x_t, factor, rstd, Tensor(), dx);
  testing::expect_close(dx, expected, tolerance("norm_backward_input"), "dx");
  const Tensor both = output(x_t.shape());
  ops::rms_norm_backward(ctx, dy_t, x_t, factor, rstd, Tensor(), both, dweight);
  EXPECT_EQ(testing::bits_of(both), testing::bits_of(dx));
  ops::add_rms_norm(ctx, x_t, x_t, factor, kEpsilon, both, y, rstd);
  Values twice = x;
  for (double& value : twice) value *= 2.0;
  testing::expect_close(y, testing::reference::rms_norm(twice, sum, kEpsilon), tolerance("norm"),
                        "of a sum");
  for (const std::int64_t columns : {264, 4104, 8200}) {
    const Values in = random(1, 3 * columns), w = random(2, columns, 0.1);
    Values more = w;
    for (double& value : more) value += 1.0;
    const Tensor out = output({3, columns});
    ops::rms_norm(ctx, tensor(in, out.shape()), {tensor(w, {columns}), 1.0f}, kEpsilon, out,
                  testing::make_output(ctx, {3}, DType::kF32));
    testing::expect_close(out, testing::reference::rms_norm(in, more, kEpsilon), tolerance("norm"),
                          "columns " + std::to_string(columns));
  }
}

// Rows of whole chunks, in the lengths at which a GPU takes other teams of threads, and of none.
TEST_P(Norm, LongRows) {
  for (const std::int64_t columns : {8, 264, 1024, 1032, 3072, 3080, 4104, 8192, 8200}) {
    constexpr std::int64_t kFew = 5;
    const Values in = random(1, kFew * columns), w = random(2, columns), b = random(3, columns);
    const Values d = random(4, kFew * columns);
    const Shape shape = {kFew, columns};
    const Tensor in_t = tensor(in, shape), w_t = tensor(w, {columns}), d_t = tensor(d, shape);
    const Tensor out = output(shape), din = output(shape);
    const Tensor m = testing::make_output(ctx, {kFew}, DType::kF32);
    const Tensor r = testing::make_output(ctx, {kFew}, DType::kF32);
    const Tensor dw = testing::make_zeros(ctx, {columns}, DType::kF32);
    const Tensor db = testing::make_zeros(ctx, {columns}, DType::kF32);
    ops::layer_norm(ctx, in_t, w_t, tensor(b, {columns}), kEpsilon, out, m, r);
    testing::expect_close(out, testing::reference::layer_norm(in, w, b, kEpsilon),
                          tolerance("norm"), "y, columns " + std::to_string(columns));
    ops::layer_norm_backward_input(ctx, d_t, in_t, w_t, m, r, Tensor(), din);
    ops::layer_norm_backward_weight(ctx, d_t, in_t, m, r, dw, db);
    Values dx_sum(kFew * columns), dw_sum(static_cast<std::size_t>(columns), 0.0), db_sum = dw_sum;
    const Values means = testing::values_of(m), rstds = testing::values_of(r);
    for (std::size_t row = 0; row < kFew; ++row) {
      const auto n = static_cast<std::size_t>(columns);
      double g_sum = 0.0, gh_sum = 0.0;
      for (std::size_t c = 0; c < n; ++c) {
        const double h = (in[row * n + c] - means[row]) * rstds[row], g = d[row * n + c] * w[c];
        g_sum += g / static_cast<double>(n);
        gh_sum += g * h / static_cast<double>(n);
        dw_sum[c] += d[row * n + c] * h;
        db_sum[c] += d[row * n + c];
      }
      for (std::size_t c = 0; c < n; ++c) {
        const double h = (in[row * n + c] - means[row]) * rstds[row], g = d[row * n + c] * w[c];
        dx_sum[row * n + c] = rstds[row] * (g - g_sum - h * gh_sum);
      }
    }
    testing::expect_close(din, dx_sum, tolerance("norm_backward_input"), "dx");
    testing::expect_close(dw, dw_sum, tolerance("norm_backward_weight"), "dweight");
    testing::expect_close(db, db_sum, tolerance("norm_backward_weight"), "dbias");
    ops::rms_norm(ctx, in_t, w_t, kEpsilon, out, r);
    testing::expect_close(out, testing::reference::rms_norm(in, w, kEpsilon), tolerance("norm"),
                          "rms_norm");
    const Values rms = testing::values_of(r);
    for (std::size_t row = 0; row < kFew; ++row) {
      const auto n = static_cast<std::size_t>(columns);
      double gh_sum = 0.0;
      for (std::size_t c = 0; c < n; ++c) {
        gh_sum += d[row * n + c] * w[c] * in[row * n + c] * rms[row] / static_cast<double>(n);
      }
      for (std::size_t c = 0; c < n; ++c) {
        dx_sum[row * n + c] =
            rms[row] * (d[row * n + c] * w[c] - in[row * n + c] * rms[row] * gh_sum);
      }
    }
    ops::rms_norm_backward_input(ctx, d_t, in_t, w_t, r, Tensor(), din);
    testing::expect_close(din, dx_sum, tolerance("norm_backward_input"), "dx of rms_norm");
  }
}

// Rows that a GPU gives to teams of one, four and eight warps, and those that it takes as they
// come.
constexpr std::int64_t kLengths[] = {8, 43, 264, 1032, 3072, 3080, 4104, 8192, 8200};

TEST_P(Norm, WithASumOnTheWayItHasTheBitsOfBoth) {
  constexpr std::int64_t kFew = 5;
  for (const std::int64_t columns : kLengths) {
    const Shape shape = {kFew, columns};
    const Tensor a = tensor(random(1, kFew * columns), shape);
    const Tensor b = tensor(random(5, kFew * columns, 0.3), shape);
    const Tensor w = tensor(random(2, columns), {columns});
    const Tensor shift = tensor(random(3, columns), {columns});
    const auto row_output = [&] { return testing::make_output(ctx, {kFew}, DType::kF32); };
    const Tensor sum = output(shape), out = output(shape), m = row_output(), r = row_output();
    const Tensor sum_too = output(shape), out_too = output(shape);
    const Tensor m_too = row_output(), r_too = row_output();
    ops::add(ctx, a, b, sum);
    const auto expect_same = [&](const std::string& what) {
      EXPECT_EQ(testing::bits_of(sum_too), testing::bits_of(sum)) << what << columns;
      EXPECT_EQ(testing::bits_of(out_too), testing::bits_of(out)) << what << columns;
      EXPECT_EQ(testing::bits_of(r_too), testing::bits_of(r)) << what << columns;
    };
    for (const Tensor& bias_or_none : {shift, Tensor()}) {
      ops::layer_norm(ctx, sum, w, bias_or_none, kEpsilon, out, m, r);
      ops::add_layer_norm(ctx, a, b, w, bias_or_none, kEpsilon, sum_too, out_too, m_too, r_too);
      expect_same("layer norm of ");
      EXPECT_EQ(testing::bits_of(m_too), testing::bits_of(m)) << columns;
    }
    ops::rms_norm(ctx, sum, w, kEpsilon, out, r);
    ops::add_rms_norm(ctx, a, b, w, kEpsilon, sum_too, out_too, r_too);
    expect_same("RMS norm of ");
  }
}

// Some rows make several parts of the sums.
TEST_P(Norm, BothGradientsHaveTheBitsOfEach) {
  for (const std::int64_t rows : {5, 203}) {
    for (const std::int64_t columns : kLengths) {
      if (rows > 5 && columns > 1032) continue;
      const Shape shape = {rows, columns};
      const Tensor in = tensor(random(1, rows * columns), shape);
      const Tensor w = tensor(random(2, columns), {columns});
      const Tensor d = tensor(random(4, rows * columns), shape);
      const Tensor rest = tensor(random(6, rows * columns), shape);
      const Tensor m = testing::make_tensor(ctx, random(7, rows, 0.1), {rows}, DType::kF32);
      const Tensor r = testing::make_tensor(ctx, Values(rows, 1.25), {rows}, DType::kF32);
      for (const bool rms : {false, true}) {
        for (const Tensor& residual : {Tensor(), rest}) {
          const auto sums = [&] { return testing::make_zeros(ctx, {columns}, DType::kF32); };
          const Tensor dw = sums(), db = sums(), dw_too = sums(), db_too = sums();
          const Tensor of_dx = sums(), of_dx_too = sums();
          const Tensor own = output(shape);
          // It takes the place of the residual, where there is one.
          const Tensor too =
              residual.defined() ? tensor(testing::values_of(rest), shape) : output(shape);
          const Tensor residual_too = residual.defined() ? too : Tensor();
          if (rms) {
            ops::rms_norm_backward_input(ctx, d, in, w, r, residual, own);
            ops::rms_norm_backward_weight(ctx, d, in, r, dw);
            ops::rms_norm_backward(ctx, d, in, w, r, residual_too, too, dw_too);
          } else {
            ops::layer_norm_backward_input(ctx, d, in, w, m, r, residual, own);
            ops::layer_norm_backward_weight(ctx, d, in, m, r, dw, db);
            ops::add_column_sums(ctx, own, of_dx);
            ops::layer_norm_backward(ctx, d, in, w, m, r, residual_too, too, dw_too, db_too,
                                     of_dx_too);
          }
          const std::string what = std::to_string(rows) + " x " + std::to_string(columns);
          EXPECT_EQ(testing::bits_of(too), testing::bits_of(own)) << what;
          EXPECT_EQ(testing::bits_of(dw_too), testing::bits_of(dw)) << what;
          EXPECT_EQ(testing::bits_of(db_too), testing::bits_of(db)) << what;
          EXPECT_EQ(testing::bits_of(of_dx_too), testing::bits_of(of_dx)) << what;
        }
      }
      const Tensor own = output(shape), dw = testing::make_zeros(ctx, {columns}, DType::kF32);
      ops::layer_norm_backward(ctx, d, in, w, m, r, Tensor(), own, dw, Tensor());  // no bias
    }
  }
}

// The sums over rows have the same order wherever the other tensors lie, so that schedules which
// make these gradients apart change no bit.
TEST_P(Norm, WeightGradientsDoNotFollowTheAddresses) {
  for (const std::int64_t columns : {264, 1032, 3080}) {
    const std::int64_t rows = columns == 264 ? 203 : 70;
    const Shape shape = {rows, columns};
    const Values values = random(2, columns);
    const Tensor in = tensor(random(1, rows * columns), shape), w = tensor(values, {columns});
    const Tensor d = tensor(random(4, rows * columns), shape);
    Values moved = values;
    moved.insert(moved.begin(), 0.0);
    const Tensor aside = tensor(moved, {columns + 1}).flat_range(1, columns + 1);
    const Tensor m = testing::make_tensor(ctx, random(7, rows, 0.1), {rows}, DType::kF32);
    const Tensor r = testing::make_tensor(ctx, Values(rows, 1.25), {rows}, DType::kF32);
    std::vector<std::string> bits;
    for (const Tensor& of : {w, aside}) {
      const Tensor dw = testing::make_zeros(ctx, {columns}, DType::kF32);
      const Tensor db = testing::make_zeros(ctx, {columns}, DType::kF32), to = output(shape);
      ops::layer_norm_backward(ctx, d, in, of, m, r, Tensor(), to, dw, db);
      bits.push_back(testing::bits_of(dw) + testing::bits_of(db));
    }
    EXPECT_EQ(bits[0], bits[1]) << columns;
  }
}

// In fp32 what else goes to x is added to the norm's own gradient; in the others the same is
// rounded once, so its bits are those of fp32's result, cast.
TEST_P(Norm, WhatElseGoesToItsInputIsAddedAndRoundedOnce) {
  constexpr std::int64_t kFew = 5;
  for (const std::int64_t columns : kLengths) {
    const Shape shape = {kFew, columns};
    const Values in = random(1, kFew * columns), w = random(2, columns);
    const Values d = random(4, kFew * columns), rest = random(6, kFew * columns);
    const Tensor m = testing::make_tensor(ctx, random(7, kFew, 0.1), {kFew}, DType::kF32);
    const Tensor r = testing::make_tensor(ctx, Values(kFew, 1.25), {kFew}, DType::kF32);
    const auto backward = [&](bool rms, DType type, const Tensor& residual, const Tensor& to) {
      const auto typed = [&](const Values& values, const Shape& s) {
        return testing::make_tensor(ctx, values, s, type);
      };
      const Tensor x_in = typed(in, shape), d_in = typed(d, shape), w_in = typed(w, {columns});
      rms ? ops::rms_norm_backward_input(ctx, d_in, x_in, w_in, r, residual, to)
          : ops::layer_norm_backward_input(ctx, d_in, x_in, w_in, m, r, residual, to);
    };
    for (const bool rms : {false, true}) {
      const Tensor own = testing::make_output(ctx, shape, DType::kF32);
      backward(rms, DType::kF32, Tensor(), own);
      Values expected = testing::values_of(own);
      for (std::size_t i = 0; i < expected.size(); ++i) expected[i] += rest[i];
      const Tensor exact = testing::make_output(ctx, shape, DType::kF32);
      backward(rms, DType::kF32, testing::make_tensor(ctx, rest, shape, DType::kF32), exact);
      testing::expect_close(exact, expected, 1e-6, "columns " + std::to_string(columns));
      const Tensor once = output(shape), got = output(shape), in_place = tensor(rest, shape);
      ops::cast(ctx, exact, once);
      backward(rms, dtype(), tensor(rest, shape), got);
      EXPECT_EQ(testing::bits_of(got), testing::bits_of(once)) << columns;
      backward(rms, dtype(), in_place, in_place);
      EXPECT_EQ(testing::bits_of(in_place), testing::bits_of(once)) << columns;
    }
  }
}

TEST_P(Norm, TypesMayDiffer) {
  const Tensor w32 = testing::make_tensor(ctx, weight, {kColumns}, DType::kF32);
  const Tensor b32 = testing::make_tensor(ctx, bias, {kColumns}, DType::kF32);
  ops::layer_norm(ctx, x_t, w32, b32, kEpsilon, y, mean, rstd);
  testing::expect_close(y, testing::reference::layer_norm(x, weight, bias, kEpsilon),
                        tolerance("norm"), "y");
  // The sum is rounded to its own type, and what is normalized is what it holds then.
  const Values branch = random(5, kRows * kColumns, 0.3);
  const Tensor sum = testing::make_output(ctx, {kRows, kColumns}, DType::kBF16);
  ops::add_layer_norm(ctx, x_t, tensor(branch, {kRows, kColumns}), w32, b32, kEpsilon, sum, y, mean,
                      rstd);
  Values added = x;
  for (std::size_t i = 0; i < added.size(); ++i) added[i] += branch[i];
  added = testing::rounded(testing::rounded(added, DType::kF32), DType::kBF16);
  testing::expect_close(sum, added, 0.0, "sum");
  testing::expect_close(y, testing::reference::layer_norm(added, weight, bias, kEpsilon),
                        tolerance("norm"), "y of the sum");
}

TEST_P(Norm, LargeMeanDoesNotCancel) {
  Values shifted = x;
  for (double& value : shifted) value = value + 512.0;
  shifted = testing::rounded(shifted, dtype());
  ops::layer_norm(ctx, tensor(shifted, {kRows, kColumns}), weight_t, bias_t, kEpsilon, y, mean,
                  rstd);
  // The mean itself is rounded to 2^-15, against values of order 1.
  testing::expect_close(y, testing::reference::layer_norm(shifted, weight, bias, kEpsilon),
                        dtype() == DType::kF32 ? 1e-4 : 5e-3, "y");
}

TEST_P(Norm, WeightGradientsDoNotFollowTheThreads) {
  // So many rows make several parts.
  constexpr std::int64_t kMany = 1500;
  const Tensor many = tensor(random(7, kMany * kColumns), {kMany, kColumns});
  const Tensor d = tensor(random(8, kMany * kColumns), {kMany, kColumns});
  const Tensor out = output({kMany, kColumns});
  const Tensor m = testing::make_output(ctx, {kMany}, DType::kF32);
  const Tensor r = testing::make_output(ctx, {kMany}, DType::kF32);
  std::string bits;
  for (const int threads : {1, 2, 7}) {
    ctx.threads = threads;
    const Tensor dw = testing::make_zeros(ctx, {kColumns}, DType::kF32);
    const Tensor db = testing::make_zeros(ctx, {kColumns}, DType::kF32);
    ops::layer_norm(ctx, many, weight_t, bias_t, kEpsilon, out, m, r);
    ops::layer_norm_backward_weight(ctx, d, many, m, r, dw, db);
    const std::string now = testing::bits_of(dw) + testing::bits_of(db) + testing::bits_of(out);
    if (!bits.empty()) {
      EXPECT_EQ(now, bits) << threads;
    }
    bits = now;
  }
}

TEST_P(Norm, NotANumberStaysInItsRow) {
  Values bad = x;
  bad[kColumns + 3] = std::numeric_limits<double>::quiet_NaN();
  ops::layer_norm(ctx, tensor(bad, {kRows, kColumns}), weight_t, bias_t, kEpsilon, y, mean, rstd);
  const Values values = testing::values_of(y);
  EXPECT_TRUE(std::isnan(values[kColumns]));
  EXPECT_FALSE(std::isnan(values[0]) || std::isnan(values[2 * kColumns]));
}

TEST_P(Norm, RefusesWhatDoesNotFit) {
  const Tensor short_weight = output({kColumns - 1}), short_rows = mean.flat_range(0, 3);
  EXPECT_THROW(ops::layer_norm(ctx, x_t, short_weight, bias_t, kEpsilon, y, mean, rstd),
               InternalError);
  EXPECT_THROW(ops::layer_norm(ctx, x_t, weight_t, short_weight, kEpsilon, y, mean, rstd),
               InternalError);
  EXPECT_THROW(ops::layer_norm(ctx, x_t, weight_t, bias_t, kEpsilon, y, short_rows, rstd),
               InternalError);
  EXPECT_THROW(ops::rms_norm(ctx, x_t, weight_t, kEpsilon, y, short_rows), InternalError);
  EXPECT_THROW(ops::rms_norm(ctx, x_t, weight_t, kEpsilon, dweight, rstd), InternalError);
  const Tensor wrong_type = testing::make_zeros(ctx, {kColumns}, DType::kBF16);
  EXPECT_THROW(ops::rms_norm_backward_weight(ctx, dy_t, x_t, rstd, wrong_type), InternalError);
  EXPECT_THROW(
      ops::layer_norm_backward_input(ctx, dy_t.rows(0, 3), x_t, weight_t, mean, rstd, Tensor(), dx),
      InternalError);
  EXPECT_THROW(
      ops::layer_norm_backward_input(ctx, dy_t, x_t, weight_t, mean, rstd, dy_t.rows(0, 3), dx),
      InternalError);
  EXPECT_THROW(ops::rms_norm_backward_input(ctx, dy_t, x_t, weight_t, rstd, dy_t.rows(0, 3), dx),
               InternalError);
  EXPECT_THROW(
      ops::add_layer_norm(ctx, x_t, dy_t.rows(0, 3), weight_t, bias_t, kEpsilon, dx, y, mean, rstd),
      InternalError);
  EXPECT_THROW(ops::add_rms_norm(ctx, x_t, dy_t, weight_t, kEpsilon, dx.rows(0, 3), y, rstd),
               InternalError);
}

TRIREME_FOR_EACH_DTYPE(Norm);

}  // namespace
}  // namespace trireme
