// Adafactor's averages of squared gradients: Shazeer and Stern, "Adafactor: adaptive learning rates
// with sublinear memory cost", 2018, as torch.optim.Adafactor has them. Of a matrix it keeps the
// mean squares of rows and of columns ("lines") alone.
#pragma once

#include <cstdint>

#include "trireme/ops/context.h"

namespace trireme::ops {

// The share of a new square in an average is t^decay, with t = StepState::updates; so the first
// update has no history.
struct Adafactor {
  float decay = -0.8f;
  float epsilon = 1.1920929e-7f;  // the least root of an average, and the least mean of rows
};

// Where elements lie: `rows` runs of `columns` elements, in memory `stride` apart, from (row,
// column) of a matrix on.
struct MatrixBox {
  std::int64_t row = 0, column = 0;
  std::int64_t rows = 0, columns = 0, stride = 0;
};

// sums (2, rows + columns) fp64 of a matrix (rows, columns), first those of its rows and then those
// of its columns, += the squares of gradient (box.rows * box.stride) fp32 as it lies in memory. A
// square is divided into two numbers, for sums[0] and for sums[1], multiples of 2^-50 and of 2^-80
// of 2^StepState::squares_exponent. So no addition rounds, and the sums of all ranks, added up in
// fp64, have the same bits in any order.
void add_squares_of_lines(Context& ctx, const MatrixBox& box, const Tensor& gradient,
                          std::int64_t matrix_rows, const Tensor& sums);

// rows (r) and columns (c), fp32, average the mean squares of g by line, whose sums over the
// gradients in memory are in sums (2, r + c). mean (1) fp32 receives the mean of rows. Changes
// nothing but mean if finite == 0.
void average_lines(Context& ctx, const Adafactor& rule, const Tensor& sums, const Tensor& rows,
                   const Tensor& columns, const Tensor& mean);

// direction = g / max(sqrt(row * column / max(mean, epsilon)), epsilon). direction (box.rows *
// box.stride) fp32 may be gradient; it is 0 if finite == 0.
void divide_by_lines(Context& ctx, const Adafactor& rule, const MatrixBox& box,
                     const Tensor& gradient, const Tensor& rows, const Tensor& columns,
                     const Tensor& mean, const Tensor& direction);

// The same of elements that are no matrix. average (n) fp32 is that of their own squares;
// direction (n) = g / max(sqrt(average), epsilon).
void divide_by_average(Context& ctx, const Adafactor& rule, const Tensor& gradient,
                       const Tensor& average, const Tensor& direction);

}  // namespace trireme::ops
