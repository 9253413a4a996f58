#include "ops/cpu/isa/tables.h"
#include "ops/cpu/isa/vector.h"

namespace trireme::ops::cpu::TRIREME_ISA {
namespace {

constexpr int kMost = 4;  // vectors of columns that stay in registers over all rows of a block

template <int vectors>
TRIREME_INLINE void moments_of(const float* x, std::int64_t rows, std::int64_t columns, float* mean,
                               float* squares) {
  Vector sum[vectors] = {};
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int v = 0; v < vectors; ++v) sum[v] += load(x + row * columns + v * kWidth);
  }
  const float inverse = 1.0f / static_cast<float>(rows);
  Vector square[vectors] = {};
  for (int v = 0; v < vectors; ++v) sum[v] *= inverse;
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int v = 0; v < vectors; ++v) {
      const Vector difference = load(x + row * columns + v * kWidth) - sum[v];
      square[v] += difference * difference;
    }
  }
  for (int v = 0; v < vectors; ++v) {
    store(mean + v * kWidth, sum[v]);
    store(squares + v * kWidth, square[v]);
  }
}

TRIREME_INLINE void moments_of_column(const float* x, std::int64_t rows, std::int64_t columns,
                                      float* mean, float* squares) {
  float sum = 0.0f;
  for (std::int64_t row = 0; row < rows; ++row) sum += x[row * columns];
  sum *= 1.0f / static_cast<float>(rows);
  float square = 0.0f;
  for (std::int64_t row = 0; row < rows; ++row) {
    square += (x[row * columns] - sum) * (x[row * columns] - sum);
  }
  *mean = sum;
  *squares = square;
}

void moments(const float* x, std::int64_t rows, std::int64_t columns, float* mean, float* squares) {
  std::int64_t column = 0;
  for (; column + kMost * kWidth <= columns; column += kMost * kWidth) {
    moments_of<kMost>(x + column, rows, columns, mean + column, squares + column);
  }
  for (; column + kWidth <= columns; column += kWidth) {
    moments_of<1>(x + column, rows, columns, mean + column, squares + column);
  }
  for (; column < columns; ++column) {
    moments_of_column(x + column, rows, columns, mean + column, squares + column);
  }
}

void merge_moments(float* mean, float* squares, float count, const float* more_mean,
                   const float* more_squares, float more_count, std::int64_t columns) {
  const float share = more_count / (count + more_count);
#pragma omp simd
  for (std::int64_t i = 0; i < columns; ++i) {
    const float difference = more_mean[i] - mean[i];
    mean[i] += difference * share;
    squares[i] += more_squares[i] + difference * difference * (count * share);
  }
}

TRIREME_INLINE float clamped(float x, float low, float high) {
  const float above = x < low ? low : x;
  return above > high ? high : above;
}

void normalize(const BatchNormColumns& norm, const float* x, const float* residual, float* y,
               std::int64_t rows, std::int64_t columns) {
  const float *mean = norm.mean, *scale = norm.scale, *bias = norm.bias;
  const float low = norm.low, high = norm.high;
  for (std::int64_t row = 0; row < rows; ++row, x += columns, y += columns) {
    if (residual == nullptr) {
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i) {
        y[i] = clamped((x[i] - mean[i]) * scale[i] + bias[i], low, high);
      }
    } else {
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i) {
        y[i] = clamped((x[i] - mean[i]) * scale[i] + bias[i] + residual[i], low, high);
      }
      residual += columns;
    }
  }
}

// The gradient of what was clamped: dy, unless the clamp cut it off.
TRIREME_INLINE float passed(float y, float dy, float low, float high) {
  return y <= low || y >= high ? 0.0f : dy;
}
TRIREME_INLINE Vector passed(Vector y, Vector dy, float low, float high) {
  return (y <= low) | (y >= high) ? Vector{} : dy;
}

template <int vectors, bool has_y>
TRIREME_INLINE void sums_of(const BatchNormColumns& norm, std::int64_t column, const float* dy,
                            const float* x, const float* y, float* sums, float* sums_h,
                            std::int64_t rows, std::int64_t columns) {
  Vector mean[vectors], scale[vectors], bias[vectors], sum[vectors], sum_h[vectors];
  for (int v = 0; v < vectors; ++v) {
    mean[v] = load(norm.mean + column + v * kWidth);
    scale[v] = load(norm.scale + column + v * kWidth);
    bias[v] = load(norm.bias + column + v * kWidth);
    sum[v] = sum_h[v] = Vector{};
  }
  for (std::int64_t row = 0; row < rows; ++row) {
    for (int v = 0; v < vectors; ++v) {
      const std::int64_t at = row * columns + column + v * kWidth;
      const Vector centred = load(x + at) - mean[v];
      const Vector out = has_y ? load(y + at) : centred * scale[v] + bias[v];
      const Vector g = passed(out, load(dy + at), norm.low, norm.high);
      sum[v] += g;
      sum_h[v] += g * centred;
    }
  }
  for (int v = 0; v < vectors; ++v) {
    const std::int64_t at = column + v * kWidth;
    store(sums + at, load(sums + at) + sum[v]);
    store(sums_h + at, load(sums_h + at) + sum_h[v] * load(norm.rstd + at));
  }
}

TRIREME_INLINE void sums_of_column(const BatchNormColumns& norm, std::int64_t column,
                                   const float* dy, const float* x, const float* y, float* sums,
                                   float* sums_h, std::int64_t rows, std::int64_t columns) {
  float sum = 0.0f, sum_h = 0.0f;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t at = row * columns + column;
    const float centred = x[at] - norm.mean[column];
    const float out = y != nullptr ? y[at] : centred * norm.scale[column] + norm.bias[column];
    const float g = passed(out, dy[at], norm.low, norm.high);
    sum += g;
    sum_h += g * centred;
  }
  sums[column] += sum;
  sums_h[column] += sum_h * norm.rstd[column];
}

void backward_sums(const BatchNormColumns& norm, const float* dy, const float* x, const float* y,
                   float* sums, float* sums_h, std::int64_t rows, std::int64_t columns) {
  constexpr int kSome = 2;  // fewer than kMost: each needs five registers
  std::int64_t column = 0;
  for (; column + kSome * kWidth <= columns; column += kSome * kWidth) {
    y != nullptr ? sums_of<kSome, true>(norm, column, dy, x, y, sums, sums_h, rows, columns)
                 : sums_of<kSome, false>(norm, column, dy, x, y, sums, sums_h, rows, columns);
  }
  for (; column + kWidth <= columns; column += kWidth) {
    y != nullptr ? sums_of<1, true>(norm, column, dy, x, y, sums, sums_h, rows, columns)
                 : sums_of<1, false>(norm, column, dy, x, y, sums, sums_h, rows, columns);
  }
  for (; column < columns; ++column) {
    sums_of_column(norm, column, dy, x, y, sums, sums_h, rows, columns);
  }
}

void backward(const BatchNormColumns& norm, const float* dy, const float* x, const float* y,
              const float* mean_g, const float* slope, float* dresidual, float* dx,
              std::int64_t rows, std::int64_t columns) {
  const float *mean = norm.mean, *scale = norm.scale, *bias = norm.bias;
  const float low = norm.low, high = norm.high;
  for (std::int64_t row = 0; row < rows; ++row) {
    const std::int64_t at = row * columns;
    if (y == nullptr && dresidual == nullptr) {
#pragma omp simd
      for (std::int64_t i = 0; i < columns; ++i) {
        const float centred = x[at + i] - mean[i];
        const float g = passed(centred * scale[i] + bias[i], dy[at + i], low, high);
        dx[at + i] = scale[i] * (g - mean_g[i] - centred * slope[i]);
      }
      continue;
    }
#pragma omp simd
    for (std::int64_t i = 0; i < columns; ++i) {
      const float centred = x[at + i] - mean[i];
      const float out = y != nullptr ? y[at + i] : centred * scale[i] + bias[i];
      const float g = passed(out, dy[at + i], low, high);
      if (dresidual != nullptr) dresidual[at + i] = g;
      dx[at + i] = scale[i] * (g - mean_g[i] - centred * slope[i]);
    }
  }
}

}  // namespace

extern const BatchNormKernels kBatchNorm = {moments, merge_moments, normalize, backward_sums,
                                            backward};

}  // namespace trireme::ops::cpu::TRIREME_ISA
