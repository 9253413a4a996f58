#include "trireme/ops/adafactor.h"

#include "ops/check.h"
#include "ops/device_ops.h"

namespace trireme::ops {
namespace {

void check_box(std::string_view op, const MatrixBox& box, const Tensor& gradient) {
  TRIREME_CHECK(box.row >= 0 && box.column >= 0 && box.rows >= 0 && box.columns >= 0 &&
                    box.columns <= box.stride,
                "a box lies in its matrix");
  check_dtype(op, "gradient", gradient, {DType::kF32});
  check_elements(op, "gradient", gradient, box.rows * box.stride);
}

}  // namespace

void add_squares_of_lines(Context& ctx, const MatrixBox& box, const Tensor& gradient,
                          std::int64_t matrix_rows, const Tensor& sums) {
  check_box("add_squares_of_lines", box, gradient);
  check_dtype("add_squares_of_lines", "sums", sums, {DType::kF64});
  check_rank("add_squares_of_lines", "sums", sums, 2);
  TRIREME_CHECK(sums.shape()[0] == 2 && box.row + box.rows <= matrix_rows &&
                    box.column + box.columns <= sums.shape()[1] - matrix_rows,
                "add_squares_of_lines: sums of another matrix");
  check_step_state("add_squares_of_lines", ctx);
  dispatch(TRIREME_OP(add_squares_of_lines), ctx, box, gradient, matrix_rows, sums);
}

void average_lines(Context& ctx, const Adafactor& rule, const Tensor& sums, const Tensor& rows,
                   const Tensor& columns, const Tensor& mean) {
  check_rank("average_lines", "rows", rows, 1);
  check_rank("average_lines", "columns", columns, 1);
  check_fp32("average_lines", "rows", rows, rows.shape());
  check_fp32("average_lines", "columns", columns, columns.shape());
  check_fp32("average_lines", "mean", mean, {1});
  check_dtype("average_lines", "sums", sums, {DType::kF64});
  check_shape("average_lines", "sums", sums, {2, rows.elements() + columns.elements()});
  check_step_state("average_lines", ctx);
  dispatch(TRIREME_OP(average_lines), ctx, rule, sums, rows, columns, mean);
}

void divide_by_lines(Context& ctx, const Adafactor& rule, const MatrixBox& box,
                     const Tensor& gradient, const Tensor& rows, const Tensor& columns,
                     const Tensor& mean, const Tensor& direction) {
  check_box("divide_by_lines", box, gradient);
  check_fp32("divide_by_lines", "direction", direction, gradient.shape());
  check_fp32("divide_by_lines", "rows", rows, rows.shape());
  check_fp32("divide_by_lines", "columns", columns, columns.shape());
  check_fp32("divide_by_lines", "mean", mean, {1});
  TRIREME_CHECK(
      box.row + box.rows <= rows.elements() && box.column + box.columns <= columns.elements(),
      "divide_by_lines: averages of another matrix");
  check_step_state("divide_by_lines", ctx);
  dispatch(TRIREME_OP(divide_by_lines), ctx, rule, box, gradient, rows, columns, mean, direction);
}

void divide_by_average(Context& ctx, const Adafactor& rule, const Tensor& gradient,
                       const Tensor& average, const Tensor& direction) {
  check_fp32("divide_by_average", "gradient", gradient, gradient.shape());
  check_fp32("divide_by_average", "average", average, gradient.shape());
  check_fp32("divide_by_average", "direction", direction, gradient.shape());
  check_step_state("divide_by_average", ctx);
  dispatch(TRIREME_OP(divide_by_average), ctx, rule, gradient, average, direction);
}

}  // namespace trireme::ops
