#include <algorithm>
#include <array>

#include "ops/cpu/kernels.h"
#include "ops/cpu/parallel.h"
#include "ops/device_ops.h"
#include "ops/step_length.h"

namespace trireme::ops::cpu {
namespace {

constexpr std::int64_t kColumnsAtOnce = 512;  // of a thread, so that a row's are a few cache lines

// Rows of about kElementGrain elements.
std::int64_t rows_at_once(const MatrixBox& box) {
  return std::max<std::int64_t>(kElementGrain / std::max<std::int64_t>(box.stride, 1), 1);
}

}  // namespace

void add_squares_of_lines(Context& ctx, const MatrixBox& box, const Tensor& gradient,
                          std::int64_t matrix_rows, const Tensor& sums) {
  if (ctx.step_state->finite == 0) return;
  const SquareParts parts(ctx.step_state->squares_exponent);
  const std::int64_t lines = sums.shape()[1];
  const auto row = [&](std::int64_t i) { return gradient.data<float>() + i * box.stride; };
  parallel_ranges(ctx, box.rows, rows_at_once(box), [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t i = begin; i < end; ++i) {
      std::array<double, 2> of_row = {};
      kernels().update.add_squares_of_row(parts.high, parts.low, row(i), box.columns,
                                          of_row.data());
      double* to = sums.data<double>() + box.row + i;
      to[0] += of_row[0];
      to[lines] += of_row[1];
    }
  });
  parallel_ranges(ctx, box.columns, kColumnsAtOnce, [&](std::int64_t begin, std::int64_t end) {
    double* to = sums.data<double>() + matrix_rows + box.column + begin;
    for (std::int64_t i = 0; i < box.rows; ++i) {
      kernels().update.add_squares_to_columns(parts.high, parts.low, row(i) + begin, end - begin,
                                              to, to + lines);
    }
  });
}

void average_lines(Context& ctx, const Adafactor& rule, const Tensor& sums, const Tensor& rows,
                   const Tensor& columns, const Tensor& mean) {
  const StepState& state = *ctx.step_state;
  const std::int64_t lines = sums.shape()[1], r = rows.elements(), c = columns.elements();
  on_this_thread(ctx, [&] {
    const double share = share_of_new(rule, state);
    const float factor = gradient_factor(state);
    const double* from = sums.data<double>();
    const auto next = [&](float& average, std::int64_t line, std::int64_t count) {
      average = next_average(average, share, from[line] + from[lines + line],
                             static_cast<double>(count), factor);
    };
    double sum = 0.0;
    for (std::int64_t i = 0; i < r; ++i) {
      float& average = rows.data<float>()[i];
      if (state.finite != 0) next(average, i, c);
      sum += static_cast<double>(average);
    }
    for (std::int64_t i = 0; i < c && state.finite != 0; ++i) {
      next(columns.data<float>()[i], r + i, r);
    }
    mean.data<float>()[0] = static_cast<float>(sum / static_cast<double>(r));
  });
}

void divide_by_lines(Context& ctx, const Adafactor& rule, const MatrixBox& box,
                     const Tensor& gradient, const Tensor& rows, const Tensor& columns,
                     const Tensor& mean, const Tensor& direction) {
  const StepState& state = *ctx.step_state;
  const float factor = gradient_factor(state), least = rule.epsilon * rule.epsilon;
  parallel_ranges(ctx, box.rows, rows_at_once(box), [&](std::int64_t begin, std::int64_t end) {
    const float divisor = std::max(mean.data<float>()[0], rule.epsilon);
    for (std::int64_t i = begin; i < end; ++i) {
      float* to = direction.data<float>() + i * box.stride;
      if (state.finite == 0) {
        std::fill_n(to, box.stride, 0.0f);
        continue;
      }
      const float row = rows.data<float>()[box.row + i] / divisor;
      kernels().update.divide_by_columns({factor, row, least}, columns.data<float>() + box.column,
                                         gradient.data<float>() + i * box.stride, to, box.columns);
    }
  });
}

void divide_by_average(Context& ctx, const Adafactor& rule, const Tensor& gradient,
                       const Tensor& average, const Tensor& direction) {
  const StepState& state = *ctx.step_state;
  const bool skips = state.finite == 0;
  const AverageFactors factors = {
      .gradient_factor = gradient_factor(state),
      .share = skips ? 0.0f : static_cast<float>(share_of_new(rule, state)),
      .least = rule.epsilon * rule.epsilon};
  parallel_ranges(
      ctx, gradient.elements(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
        float* to = direction.data<float>() + begin;
        if (skips) {
          std::fill_n(to, end - begin, 0.0f);
          return;
        }
        kernels().update.divide_by_average(factors, gradient.data<float>() + begin,
                                           average.data<float>() + begin, to, end - begin);
      });
}

}  // namespace trireme::ops::cpu
