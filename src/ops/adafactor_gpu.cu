// Bound by memory: of a matrix, add_squares_of_lines reads each gradient twice.
#include "ops/device_ops.h"
#include "ops/gpu/reduce.h"
#include "ops/step_length.h"

namespace trireme::ops::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kColumns = 32, kRows = 8;  // of a block that adds up columns

// The parts of a square: see SquareParts. (No operation here may be contracted or reordered; where
// a compiler fuses the product and the first addition, the product is exact anyway.)
struct Parts {
  double high = 0.0, low = 0.0;
};
__device__ Parts parts_of_square(const SquareParts& by, float x) {
  const auto v = static_cast<double>(x);
  const double square = v * v, high = (square + by.high) - by.high;
  return {high, (square - high + by.low) - by.low};
}

// A block for each row.
__global__ void __launch_bounds__(kThreads)
    squares_of_rows_kernel(const StepState* state, MatrixBox box, const float* gradient,
                           std::int64_t lines, double* sums) {
  if (state->finite == 0) return;
  const SquareParts by(state->squares_exponent);
  const float* row = gradient + blockIdx.x * box.stride;
  Parts total;
  for (std::int64_t i = threadIdx.x; i < box.columns; i += kThreads) {
    const Parts parts = parts_of_square(by, row[i]);
    total.high += parts.high;
    total.low += parts.low;
  }
  total.high = block_sum<kThreads / 32>(total.high);
  total.low = block_sum<kThreads / 32>(total.low);
  if (threadIdx.x != 0) return;
  double* to = sums + box.row + blockIdx.x;
  to[0] += total.high;
  to[lines] += total.low;
}

// A block for kColumns columns, of kColumns x kRows threads.
__global__ void __launch_bounds__(kColumns* kRows)
    squares_of_columns_kernel(const StepState* state, MatrixBox box, const float* gradient,
                              std::int64_t lines, double* sums) {
  TRIREME_SHARED(Parts, of_threads, kColumns * kRows);
  if (state->finite == 0) return;
  const SquareParts by(state->squares_exponent);
  const int x = static_cast<int>(threadIdx.x), y = static_cast<int>(threadIdx.y);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * kColumns + x;
  Parts total;
  if (column < box.columns) {
    for (std::int64_t i = y; i < box.rows; i += kRows) {
      const Parts parts = parts_of_square(by, gradient[i * box.stride + column]);
      total.high += parts.high;
      total.low += parts.low;
    }
  }
  of_threads[y * kColumns + x] = total;
  __syncthreads();
  if (y != 0 || column >= box.columns) return;
  for (int i = 1; i < kRows; ++i) {
    total.high += of_threads[i * kColumns + x].high;
    total.low += of_threads[i * kColumns + x].low;
  }
  double* to = sums + box.column + column;
  to[0] += total.high;
  to[lines] += total.low;
}

__global__ void __launch_bounds__(kThreads)
    average_lines_kernel(Adafactor rule, const StepState* state, const double* sums, float* rows,
                         std::int64_t row_count, float* columns, std::int64_t column_count) {
  const std::int64_t lines = row_count + column_count;
  const std::int64_t line = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (state->finite == 0 || line >= lines) return;
  float& average = line < row_count ? rows[line] : columns[line - row_count];
  const std::int64_t count = line < row_count ? column_count : row_count;
  average = next_average(average, share_of_new(rule, *state), sums[line] + sums[lines + line],
                         static_cast<double>(count), gradient_factor(*state));
}

// One block computes the mean.
__global__ void __launch_bounds__(kThreads)
    mean_of_rows_kernel(const float* rows, std::int64_t count, float* mean) {
  double sum = 0.0;
  for (std::int64_t i = threadIdx.x; i < count; i += kThreads) sum += static_cast<double>(rows[i]);
  sum = block_sum<kThreads / 32>(sum);
  if (threadIdx.x == 0) *mean = static_cast<float>(sum / static_cast<double>(count));
}

__global__ void __launch_bounds__(kThreads)
    divide_by_lines_kernel(Adafactor rule, const StepState* state, MatrixBox box,
                           const float* gradient, const float* rows, const float* columns,
                           const float* mean, float* direction) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= box.rows * box.stride) return;
  const std::int64_t row = at / box.stride, column = at % box.stride;
  if (state->finite == 0) {
    direction[at] = 0.0f;
    return;
  }
  if (column >= box.columns) return;
  const float divisor = *mean > rule.epsilon ? *mean : rule.epsilon;
  const float product = rows[box.row + row] / divisor * columns[box.column + column];
  const float least = rule.epsilon * rule.epsilon;
  const float square = product > least ? product : least;
  direction[at] = gradient[at] * gradient_factor(*state) / sqrtf(square);
}

__global__ void __launch_bounds__(kThreads)
    divide_by_average_kernel(Adafactor rule, const StepState* state, const float* gradient,
                             float* average, float* direction, std::int64_t elements) {
  const std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (at >= elements) return;
  if (state->finite == 0) {
    direction[at] = 0.0f;
    return;
  }
  const float g = gradient[at] * gradient_factor(*state);
  const float share = static_cast<float>(share_of_new(rule, *state));
  const float next = average[at] + share * (g * g - average[at]);
  average[at] = next;
  const float least = rule.epsilon * rule.epsilon;
  const float square = next > least ? next : least;
  direction[at] = g / sqrtf(square);
}

unsigned blocks_of(std::int64_t elements) {
  return extent(blocks_for(elements, kThreads));
}

const StepState* state_of(const Context& ctx) {
  return ctx.step_state.get();
}

}  // namespace

void add_squares_of_lines(Context& ctx, const MatrixBox& box, const Tensor& gradient,
                          std::int64_t matrix_rows, const Tensor& sums) {
  const std::int64_t lines = sums.shape()[1];
  double* to = device_data<double>(sums);
  launch(squares_of_rows_kernel, extent(box.rows), kThreads, 0, ctx.stream, state_of(ctx), box,
         device_data<float>(gradient), lines, to);
  launch(squares_of_columns_kernel, extent(blocks_for(box.columns, kColumns)),
         dim3(kColumns, kRows), 0, ctx.stream, state_of(ctx), box, device_data<float>(gradient),
         lines, to + matrix_rows);
}

void average_lines(Context& ctx, const Adafactor& rule, const Tensor& sums, const Tensor& rows,
                   const Tensor& columns, const Tensor& mean) {
  launch(average_lines_kernel, blocks_of(rows.elements() + columns.elements()), kThreads, 0,
         ctx.stream, rule, state_of(ctx), device_data<double>(sums), device_data<float>(rows),
         rows.elements(), device_data<float>(columns), columns.elements());
  launch(mean_of_rows_kernel, 1, kThreads, 0, ctx.stream, device_data<float>(rows), rows.elements(),
         device_data<float>(mean));
}

void divide_by_lines(Context& ctx, const Adafactor& rule, const MatrixBox& box,
                     const Tensor& gradient, const Tensor& rows, const Tensor& columns,
                     const Tensor& mean, const Tensor& direction) {
  launch(divide_by_lines_kernel, blocks_of(box.rows * box.stride), kThreads, 0, ctx.stream, rule,
         state_of(ctx), box, device_data<float>(gradient), device_data<float>(rows),
         device_data<float>(columns), device_data<float>(mean), device_data<float>(direction));
}

void divide_by_average(Context& ctx, const Adafactor& rule, const Tensor& gradient,
                       const Tensor& average, const Tensor& direction) {
  launch(divide_by_average_kernel, blocks_of(gradient.elements()), kThreads, 0, ctx.stream, rule,
         state_of(ctx), device_data<float>(gradient), device_data<float>(average),
         device_data<float>(direction), gradient.elements());
}

}  // namespace trireme::ops::gpu
