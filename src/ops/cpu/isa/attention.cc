#include "ops/cpu/isa/tables.h"
#include "ops/cpu/isa/vector.h"

namespace trireme::ops::cpu::TRIREME_ISA {
namespace {

// Register blocking: kRows x kVectors accumulators of kWidth floats stay in registers.
#if defined(__AVX512F__)
constexpr int kRows = 6, kVectors = 4;
#elif defined(__AVX__)
constexpr int kRows = 6, kVectors = 2;
#else
constexpr int kRows = 2, kVectors = 4;
#endif

// Computes c (rows, vectors * kWidth) of one register block.
template <int rows, int vectors>
TRIREME_INLINE void register_block(const TileProduct& p, const float* a, const float* b, float* c) {
  Vector sum[rows][vectors];
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < vectors; ++j) {
      const auto* from = reinterpret_cast<const Vector*>(c + i * p.c_row + j * kWidth);
      sum[i][j] = p.accumulate ? *from : Vector{};
    }
  }
  for (std::int64_t k = 0; k < p.k; ++k) {
    Vector row[vectors];
    for (int j = 0; j < vectors; ++j) {
      row[j] = *reinterpret_cast<const Vector*>(b + k * p.b_row + j * kWidth);
    }
    for (int i = 0; i < rows; ++i) {
      const float factor = a[i * p.a_row + k * p.a_column];
      for (int j = 0; j < vectors; ++j) sum[i][j] += factor * row[j];
    }
  }
  for (int i = 0; i < rows; ++i) {
    for (int j = 0; j < vectors; ++j) {
      *reinterpret_cast<Vector*>(c + i * p.c_row + j * kWidth) = sum[i][j];
    }
  }
}

// Computes all rows of a stripe of c that is vectors * kWidth wide.
template <int vectors>
TRIREME_INLINE void stripe(const TileProduct& p, std::int64_t column) {
  std::int64_t i = 0;
  const float* b = p.b + column;
  for (; i + kRows <= p.m; i += kRows) {
    register_block<kRows, vectors>(p, p.a + i * p.a_row, b, p.c + i * p.c_row + column);
  }
  for (; i + 2 <= p.m; i += 2) {
    register_block<2, vectors>(p, p.a + i * p.a_row, b, p.c + i * p.c_row + column);
  }
  if (i < p.m) register_block<1, vectors>(p, p.a + i * p.a_row, b, p.c + i * p.c_row + column);
}

void product(const TileProduct& p) {
  std::int64_t column = 0;
  for (; column + kVectors * kWidth <= p.n; column += kVectors * kWidth)
    stripe<kVectors>(p, column);
  for (; column < p.n; column += kLane) stripe<kLane / kWidth>(p, column);
}

typedef float Four __attribute__((vector_size(16), aligned(4), may_alias));

// y (4, 4) = factor * transpose of x (4, 4).
TRIREME_INLINE void transpose_four(const float* x, std::int64_t x_row, float factor, float* y,
                                   std::int64_t y_row) {
  const Four a = *reinterpret_cast<const Four*>(x) * factor;
  const Four b = *reinterpret_cast<const Four*>(x + x_row) * factor;
  const Four c = *reinterpret_cast<const Four*>(x + 2 * x_row) * factor;
  const Four d = *reinterpret_cast<const Four*>(x + 3 * x_row) * factor;
  const Four ab_low = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Four ab_high = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Four cd_low = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Four cd_high = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  *reinterpret_cast<Four*>(y) = __builtin_shufflevector(ab_low, cd_low, 0, 1, 4, 5);
  *reinterpret_cast<Four*>(y + y_row) = __builtin_shufflevector(ab_low, cd_low, 2, 3, 6, 7);
  *reinterpret_cast<Four*>(y + 2 * y_row) = __builtin_shufflevector(ab_high, cd_high, 0, 1, 4, 5);
  *reinterpret_cast<Four*>(y + 3 * y_row) = __builtin_shufflevector(ab_high, cd_high, 2, 3, 6, 7);
}

void transpose(const float* x, std::int64_t x_row, std::int64_t rows, std::int64_t columns,
               float factor, float* y, std::int64_t rows_padded) {
  const std::int64_t rows4 = rows / 4 * 4;
  const std::int64_t columns4 = columns / 4 * 4;
  for (std::int64_t r = 0; r < rows4; r += 4) {
    for (std::int64_t c = 0; c < columns4; c += 4) {
      transpose_four(x + r * x_row + c, x_row, factor, y + c * rows_padded + r, rows_padded);
    }
  }
  for (std::int64_t c = 0; c < columns; ++c) {
    for (std::int64_t r = c < columns4 ? rows4 : 0; r < rows; ++r) {
      y[c * rows_padded + r] = factor * x[r * x_row + c];
    }
    for (std::int64_t r = rows; r < rows_padded; ++r) y[c * rows_padded + r] = 0.0f;
  }
}

void mask(const TileMask& tile, float* scores, std::int64_t keys, std::int64_t queries) {
  for (std::int64_t i = 0; i < keys; ++i) {
    const auto key = static_cast<std::int32_t>(tile.first + i);
    float* row = scores + i * queries;
#pragma omp simd
    for (std::int64_t j = 0; j < queries; ++j) {
      const bool visible = (tile.from[j] <= key) & (key <= tile.to[j]);
      row[j] = visible ? row[j] : -__builtin_inff();
    }
  }
}

void softmax(float* scores, std::int64_t keys, std::int64_t queries, float* maximum, float* sum,
             float* rescale) {
  for (std::int64_t begin = 0; begin < queries; begin += kLane) {
    float top[kLane], total[kLane];
#pragma omp simd
    for (std::int64_t j = 0; j < kLane; ++j) {
      top[j] = maximum[begin + j];
      total[j] = 0.0f;
    }
    for (std::int64_t i = 0; i < keys; ++i) {
      const float* row = scores + i * queries + begin;
#pragma omp simd
      for (std::int64_t j = 0; j < kLane; ++j) top[j] = row[j] > top[j] ? row[j] : top[j];
    }
    float base[kLane];
#pragma omp simd
    for (std::int64_t j = 0; j < kLane; ++j) {
      // If a query has seen no key yet, any finite base gives weights of 0, not NaN.
      base[j] = top[j] == -__builtin_inff() ? 0.0f : top[j];
      rescale[begin + j] = exp_of_difference(maximum[begin + j] - base[j]);
      maximum[begin + j] = top[j];
    }
    for (std::int64_t i = 0; i < keys; ++i) {
      float* row = scores + i * queries + begin;
#pragma omp simd
      for (std::int64_t j = 0; j < kLane; ++j) {
        const float weight = exp_of_difference(row[j] - base[j]);
        row[j] = weight;
        total[j] += weight;
      }
    }
#pragma omp simd
    for (std::int64_t j = 0; j < kLane; ++j) {
      sum[begin + j] = sum[begin + j] * rescale[begin + j] + total[j];
    }
  }
}

void softmax_backward(float* scores, float* dweights, std::int64_t keys, std::int64_t queries,
                      const float* log_sum, const float* delta, float factor) {
  for (std::int64_t i = 0; i < keys; ++i) {
    float* row = scores + i * queries;
    float* drow = dweights + i * queries;
#pragma omp simd
    for (std::int64_t j = 0; j < queries; ++j) {
      const float weight = exp_of_difference(row[j] - log_sum[j]);
      row[j] = weight;
      drow[j] = weight * (drow[j] - delta[j]) * factor;
    }
  }
}

// A score that the mask hides is minus infinity, and its weight 0.
void softmax_backward_capped(float* scores, float* dweights, std::int64_t keys,
                             std::int64_t queries, const float* log_sum, const float* delta,
                             float factor, float cap) {
  const float inverse = 1.0f / cap;
  for (std::int64_t i = 0; i < keys; ++i) {
    float* row = scores + i * queries;
    float* drow = dweights + i * queries;
#pragma omp simd
    for (std::int64_t j = 0; j < queries; ++j) {
      const float weight = exp_of_difference(row[j] - log_sum[j]);
      const float share = row[j] < -cap ? 1.0f : row[j] * inverse;
      row[j] = weight;
      drow[j] = weight * (drow[j] - delta[j]) * factor * (1.0f - share * share);
    }
  }
}

void scale_rows(float* x, std::int64_t rows, std::int64_t columns, const float* factors) {
  for (std::int64_t r = 0; r < rows; ++r) {
    const float factor = factors[r];
#pragma omp simd
    for (std::int64_t c = 0; c < columns; ++c) x[r * columns + c] *= factor;
  }
}

float dot(const float* a, const float* b, std::int64_t n) {
  float sum = 0.0f;
#pragma omp simd reduction(+ : sum)
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

}  // namespace

extern const AttentionKernels kAttention = {
    product, transpose, mask, softmax, softmax_backward, softmax_backward_capped, scale_rows, dot};

}  // namespace trireme::ops::cpu::TRIREME_ISA
