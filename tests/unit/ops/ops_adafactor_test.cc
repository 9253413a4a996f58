#include <algorithm>
#include <cmath>
#include <cstdint>

#include "trireme/ops/adafactor.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/lengths.h"

#include "support/ops_reference.h"

namespace trireme {
namespace {

using ops::MatrixBox;
using testing::Values;

// Tests one type: the gradients and averages are fp32.
class Adafactor : public testing::OpsTest {
 protected:
  static constexpr std::int64_t kRows = 37, kColumns = 83, kLines = kRows + kColumns;
  Adafactor() {
    double sum = testing::inner_product(gradient, gradient);
    const Tensor norm = testing::make_zeros(ctx, {1}, DType::kF64);
    set(state);
    ops::finish_gradient_norm(ctx, testing::make_tensor(ctx, sum), 0.0f, norm);
    state = ops::read_step_state(ctx);
  }
  Tensor fp32(const Values& values) {
    return testing::make_tensor(ctx, values, {std::ssize(values)}, DType::kF32);
  }
  Tensor no_sums() { return testing::make_zeros(ctx, {2, kLines}, DType::kF64); }
  double square(std::int64_t row, std::int64_t column) const {
    const double g = gradient[static_cast<std::size_t>(row * kColumns + column)];
    return g * g;
  }

  // Gradients of very different sizes.
  const Values gradient = [] {
    Values drawn = testing::random_values(2, kRows * kColumns);
    for (std::size_t i = 0; i < drawn.size(); ++i) drawn[i] *= std::exp2(-static_cast<int>(i % 20));
    return testing::rounded(drawn, DType::kF32);
  }();
  const Tensor gradient_t = fp32(gradient);
  ops::StepState state = {.updates = 2, .gradient_scale = 0.25f};  // the norm counts one more
};

TEST_P(Adafactor, SumsOfLinesAreThoseOfTheSquares) {
  const Tensor sums = no_sums();
  ops::add_squares_of_lines(ctx, {.rows = kRows, .columns = kColumns, .stride = kColumns},
                            gradient_t, kRows, sums);
  const Values parts = testing::values_of(sums);
  for (std::int64_t line = 0; line < kLines; ++line) {
    double expected = 0.0;
    for (std::int64_t i = 0; i < (line < kRows ? kColumns : kRows); ++i) {
      expected += line < kRows ? square(line, i) : square(i, line - kRows);
    }
    const auto at = static_cast<std::size_t>(line);
    EXPECT_NEAR(parts[at] + parts[at + kLines], expected, 1e-13 * expected + 1e-17) << line;
  }
}

// Boxes of a matrix, in any order, with gaps between rows, give the bits of the whole.
TEST_P(Adafactor, SumsOfLinesHaveNoOrder) {
  const Tensor whole = no_sums(), in_parts = no_sums();
  ops::add_squares_of_lines(ctx, {.rows = kRows, .columns = kColumns, .stride = kColumns},
                            gradient_t, kRows, whole);
  const std::int64_t row_cuts[] = {0, 1, 20, kRows}, column_cuts[] = {0, 40, 41, kColumns};
  for (int r = 2; r >= 0; --r) {
    for (int c = 2; c >= 0; --c) {
      MatrixBox box{.row = row_cuts[r], .column = column_cuts[c]};
      box.rows = row_cuts[r + 1] - box.row;
      box.columns = column_cuts[c + 1] - box.column;
      box.stride = box.columns + 3;
      Values padded(static_cast<std::size_t>(box.rows * box.stride), 99.0);
      for (std::int64_t i = 0; i < box.rows; ++i) {
        const auto* from = gradient.data() + (box.row + i) * kColumns + box.column;
        std::copy_n(from, box.columns, padded.data() + i * box.stride);
      }
      ctx.threads = 1 + r;
      ops::add_squares_of_lines(ctx, box, fp32(padded), kRows, in_parts);
    }
  }
  EXPECT_EQ(testing::bits_of(in_parts), testing::bits_of(whole));
}

// Several updates by the formulas of torch.optim.Adafactor, in double.
TEST_P(Adafactor, DividesByTheAveragesOfLines) {
  const ops::Adafactor rule = {.decay = -0.8f, .epsilon = 1e-5f};
  const MatrixBox box = {.rows = kRows, .columns = kColumns, .stride = kColumns};
  const Tensor rows = testing::make_zeros(ctx, {kRows}, DType::kF32);
  const Tensor columns = testing::make_zeros(ctx, {kColumns}, DType::kF32);
  const Tensor mean = testing::make_zeros(ctx, {1}, DType::kF32);
  const Tensor direction = fp32(gradient);
  Values r(kRows, 0.0), c(kColumns, 0.0);
  const double factor = 0.25 * 0.25;
  for (state.updates = 1; state.updates < 4; ++state.updates) {
    set(state);
    const Tensor sums = no_sums();
    ops::add_squares_of_lines(ctx, box, gradient_t, kRows, sums);
    ops::average_lines(ctx, rule, sums, rows, columns, mean);
    const double share = std::pow(static_cast<double>(state.updates), -0.8);
    Values r_now(kRows, 0.0), c_now(kColumns, 0.0);
    for (std::int64_t i = 0; i < kRows; ++i) {
      for (std::int64_t j = 0; j < kColumns; ++j) {
        r_now[static_cast<std::size_t>(i)] += factor * square(i, j) / kColumns;
        c_now[static_cast<std::size_t>(j)] += factor * square(i, j) / kRows;
      }
    }
    for (std::size_t i = 0; i < r.size(); ++i) r[i] += share * (r_now[i] - r[i]);
    for (std::size_t j = 0; j < c.size(); ++j) c[j] += share * (c_now[j] - c[j]);
  }
  double mean_of_rows = 0.0;
  for (const double one : r) mean_of_rows += one / kRows;
  Values expected = gradient;
  for (std::size_t i = 0; i < expected.size(); ++i) {
    const double variance =
        r[i / kColumns] * c[i % kColumns] / std::max(mean_of_rows, double{rule.epsilon});
    expected[i] *= 0.25 / std::max(std::sqrt(variance), double{rule.epsilon});
  }
  ops::divide_by_lines(ctx, rule, box, direction, rows, columns, mean, direction);
  const double bound = testing::tolerance("update", DType::kF32);
  testing::expect_close(rows, r, bound, "rows");
  testing::expect_close(columns, c, bound, "columns");
  testing::expect_close(mean, {mean_of_rows}, bound, "mean");
  testing::expect_close(direction, expected, bound, "direction");
}

TEST_P(Adafactor, DividesByTheAveragesOfElements) {
  const ops::Adafactor rule = {.decay = -0.8f, .epsilon = 1e-3f};
  const std::int64_t count = kRows * kColumns;
  const Tensor average = testing::make_zeros(ctx, {count}, DType::kF32);
  const Tensor direction = testing::make_zeros(ctx, {count}, DType::kF32);
  Values v(static_cast<std::size_t>(count), 0.0), expected = gradient;
  for (state.updates = 1; state.updates < 4; ++state.updates) {
    set(state);
    ops::divide_by_average(ctx, rule, gradient_t, average, direction);
    const double share = std::pow(static_cast<double>(state.updates), -0.8);
    for (std::size_t i = 0; i < v.size(); ++i) {
      const double g = 0.25 * gradient[i];
      v[i] += share * (g * g - v[i]);
      expected[i] = g / std::max(std::sqrt(v[i]), 1e-3);
    }
  }
  testing::expect_close(average, v, testing::tolerance("update", DType::kF32), "average");
  testing::expect_close(direction, expected, testing::tolerance("update", DType::kF32),
                        "direction");
}

TEST_P(Adafactor, NotFiniteChangesNothing) {
  state.finite = 0;
  set(state);
  const MatrixBox box = {.rows = kRows, .columns = kColumns, .stride = kColumns};
  const Tensor rows = fp32(Values(kRows, 4.0)), columns = fp32(Values(kColumns, 2.0));
  const Tensor mean = fp32({0.0}), sums = no_sums(), direction = fp32(gradient);
  const Tensor average = fp32(gradient);
  ops::add_squares_of_lines(ctx, box, gradient_t, kRows, sums);
  ops::average_lines(ctx, {}, sums, rows, columns, mean);
  ops::divide_by_lines(ctx, {}, box, direction, rows, columns, mean, direction);
  EXPECT_EQ(testing::values_of(rows), Values(kRows, 4.0));
  EXPECT_EQ(testing::values_of(columns), Values(kColumns, 2.0));
  EXPECT_EQ(testing::values_of(direction), Values(gradient.size(), 0.0));
  ops::divide_by_average(ctx, {}, gradient_t, average, gradient_t);
  EXPECT_EQ(testing::values_of(average), gradient);
  EXPECT_EQ(testing::values_of(gradient_t), Values(gradient.size(), 0.0));
}

TEST_P(Adafactor, RefusesWhatDoesNotFit) {
  const MatrixBox box = {.rows = kRows, .columns = kColumns, .stride = kColumns};
  MatrixBox beyond = box;
  beyond.row = 1;
  EXPECT_THROW(ops::add_squares_of_lines(ctx, beyond, gradient_t, kRows, no_sums()), InternalError);
  beyond = box;
  beyond.stride = kColumns - 1;
  EXPECT_THROW(ops::add_squares_of_lines(ctx, beyond, gradient_t, kRows, no_sums()), InternalError);
  EXPECT_THROW(ops::divide_by_average(ctx, {}, gradient_t, gradient_t.flat_range(0, 3), gradient_t),
               InternalError);
}

INSTANTIATE_TEST_SUITE_P(Fp32, Adafactor, ::testing::Values(DType::kF32));

}  // namespace
}  // namespace trireme
