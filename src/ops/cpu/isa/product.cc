#include "ops/cpu/isa/tables.h"
#include "ops/cpu/isa/vector.h"

namespace trireme::ops::cpu::TRIREME_ISA {
namespace {

// The sums of a tile, two vectors of columns and a broadcast term fill the registers.
constexpr std::int64_t kColumns = 2 * kWidth;
#if defined(__AVX512F__)
constexpr std::int64_t kRows = 14;  // of 32 registers
#elif defined(__AVX__)
constexpr std::int64_t kRows = 6;  // of 16
#else
constexpr std::int64_t kRows = 4;  // of 16, with one for the product, as there is no FMA
#endif

typedef float Quad __attribute__((vector_size(16), aligned(4), may_alias));
typedef float Pair __attribute__((vector_size(8), aligned(4), may_alias));

TRIREME_INLINE Quad quad(const float* from) {
  return *reinterpret_cast<const Quad*>(from);
}

// Writes terms p to p + 3 of `lines` (4 or 2) lines of x. Line i begins at x + i * stride.
template <int width, int lines>
TRIREME_INLINE void transpose(const float* x, std::int64_t stride, float* panel) {
  constexpr Quad kZero = {};
  const Quad a = quad(x), b = quad(x + stride);
  const Quad c = lines == 4 ? quad(x + 2 * stride) : kZero;
  const Quad d = lines == 4 ? quad(x + 3 * stride) : kZero;
  const Quad low_ab = __builtin_shufflevector(a, b, 0, 4, 1, 5);
  const Quad high_ab = __builtin_shufflevector(a, b, 2, 6, 3, 7);
  const Quad low_cd = __builtin_shufflevector(c, d, 0, 4, 1, 5);
  const Quad high_cd = __builtin_shufflevector(c, d, 2, 6, 3, 7);
  const Quad terms[] = {__builtin_shufflevector(low_ab, low_cd, 0, 1, 4, 5),
                        __builtin_shufflevector(low_ab, low_cd, 2, 3, 6, 7),
                        __builtin_shufflevector(high_ab, high_cd, 0, 1, 4, 5),
                        __builtin_shufflevector(high_ab, high_cd, 2, 3, 6, 7)};
  for (int p = 0; p < 4; ++p) {
    if (lines == 4) {
      *reinterpret_cast<Quad*>(panel + p * width) = terms[p];
    } else {
      *reinterpret_cast<Pair*>(panel + p * width) =
          __builtin_shufflevector(terms[p], terms[p], 0, 1);
    }
  }
}

// A few lines of a panel, whose terms are contiguous. More at a time would be slower: strides are
// often multiples of 4096 bytes, and the first cache holds eight lines at such distances.
template <int width, int lines>
TRIREME_INLINE void pack_few(const float* x, std::int64_t stride, std::int64_t terms,
                             float* panel) {
  std::int64_t p = 0;
  for (; p + 4 <= terms; p += 4) transpose<width, lines>(x + p, stride, panel + p * width);
  for (; p < terms; ++p) {
    for (int i = 0; i < lines; ++i) panel[p * width + i] = x[i * stride + p];
  }
}
template <int width>
TRIREME_INLINE void pack_along(const PanelSource& from, std::int64_t first, float* panel) {
  const float* x = from.x + first * from.stride;
  int i = 0;
  for (; i + 4 <= width; i += 4) {
    pack_few<width, 4>(x + i * from.stride, from.stride, from.terms, panel + i);
  }
  if (i < width) pack_few<width, 2>(x + i * from.stride, from.stride, from.terms, panel + i);
}

// `panels` panels at once, whose lines' terms are a stride apart. That is faster where a panel is
// narrower than a line of the cache, and slower where it is not.
template <int width, int panels>
TRIREME_INLINE void pack_across(const PanelSource& from, std::int64_t first, float* panel) {
  for (std::int64_t p = 0; p < from.terms; ++p) {
    const float* x = from.x + p * from.stride + first;
    for (int q = 0; q < panels; ++q) {
      float* to = panel + q * width * from.terms + p * width;
      for (int i = 0; i < width; ++i) to[i] = x[q * width + i];
    }
  }
}

template <int width>
TRIREME_INLINE void pack_some(const PanelSource& from, std::int64_t first, float* panel) {
  const std::int64_t line = from.across ? 1 : from.stride;
  const std::int64_t term = from.across ? from.stride : 1;
  for (std::int64_t p = 0; p < from.terms; ++p) {
    for (std::int64_t i = 0; i < width; ++i) {
      panel[p * width + i] = first + i < from.lines ? from.x[(first + i) * line + p * term] : 0.0f;
    }
  }
}

template <int width>
void pack(const PanelSource& from, float* panels) {
  constexpr int kAtOnce = width < 16 ? 24 / width : 1;
  std::int64_t i = 0;
  if (from.across) {
    for (; i + kAtOnce * width <= from.lines; i += kAtOnce * width) {
      pack_across<width, kAtOnce>(from, i, panels + i * from.terms);
    }
  }
  for (; i + width <= from.lines; i += width) {
    float* panel = panels + i * from.terms;
    from.across ? pack_across<width, 1>(from, i, panel) : pack_along<width>(from, i, panel);
  }
  if (i < from.lines) pack_some<width>(from, i, panels + i * from.terms);
}

// Adds term p to the sums.
template <int vectors>
TRIREME_INLINE void add_term(const float* a, const float* b, std::int64_t p,
                             Vector (&sums)[kRows][vectors]) {
  Vector bp[vectors];
  for (int v = 0; v < vectors; ++v) bp[v] = load(b + p * kColumns + v * kWidth);
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < vectors; ++v) sums[r][v] += bp[v] * a[p * kRows + r];
  }
}

// A tile of at most `vectors` vectors of columns.
template <int vectors>
TRIREME_INLINE void multiply_vectors(const float* a, const float* b, std::int64_t terms,
                                     const ProductTile& tile) {
  Vector sums[kRows][vectors] = {};
  for (std::int64_t r = 0; r < tile.rows; ++r) __builtin_prefetch(tile.c + r * tile.stride, 1);
  std::int64_t p = 0;
  for (; p + 4 <= terms; p += 4) {
    for (int q = 0; q < 4; ++q) add_term(a, b, q, sums);
    a += 4 * kRows;
    b += 4 * kColumns;
  }
  for (; p < terms; ++p, a += kRows, b += kColumns) add_term(a, b, 0, sums);
  if (tile.columns == vectors * kWidth) {
#pragma GCC unroll 16
    for (int r = 0; r < kRows; ++r) {
      if (r >= tile.rows) return;
      float* c = tile.c + r * tile.stride;
      for (int v = 0; v < vectors; ++v) {
        store(c + v * kWidth, tile.accumulate ? load(c + v * kWidth) + sums[r][v] : sums[r][v]);
      }
    }
    return;
  }
  float whole[kRows * kColumns];
#pragma GCC unroll 16
  for (int r = 0; r < kRows; ++r) {
    for (int v = 0; v < vectors; ++v) store(whole + r * kColumns + v * kWidth, sums[r][v]);
  }
  for (std::int64_t r = 0; r < tile.rows; ++r) {
    float* c = tile.c + r * tile.stride;
    for (std::int64_t j = 0; j < tile.columns; ++j) {
      c[j] = tile.accumulate ? c[j] + whole[r * kColumns + j] : whole[r * kColumns + j];
    }
  }
}

void multiply(const float* a, const float* b, std::int64_t terms, const ProductTile& tile) {
  tile.columns > kWidth ? multiply_vectors<2>(a, b, terms, tile)
                        : multiply_vectors<1>(a, b, terms, tile);
}

TRIREME_INLINE float sum_of(Vector x) {
  float sum = 0.0f;
  for (int i = 0; i < kWidth; ++i) sum += x[i];
  return sum;
}

// Computes y[i] for `lines` (4 or 1) lines of w at once.
template <int lines>
TRIREME_INLINE void dots_of(const float* x, const float* w, std::int64_t stride, std::int64_t terms,
                            float* y) {
  Vector sums[lines] = {};
  std::int64_t p = 0;
  for (; p + kWidth <= terms; p += kWidth) {
    const Vector xp = load(x + p);
    for (int i = 0; i < lines; ++i) sums[i] += xp * load(w + i * stride + p);
  }
  for (int i = 0; i < lines; ++i) {
    float sum = sum_of(sums[i]);
    for (std::int64_t q = p; q < terms; ++q) sum += x[q] * w[i * stride + q];
    y[i] = sum;
  }
}

void dots(const float* x, const float* w, std::int64_t stride, std::int64_t lines,
          std::int64_t terms, float* y) {
  std::int64_t i = 0;
  for (; i + 4 <= lines; i += 4) dots_of<4>(x, w + i * stride, stride, terms, y + i);
  for (; i < lines; ++i) dots_of<1>(x, w + i * stride, stride, terms, y + i);
}

}  // namespace

extern const ProductKernels kProduct = {kRows,          kColumns, pack<kRows>,
                                        pack<kColumns>, multiply, dots};

}  // namespace trireme::ops::cpu::TRIREME_ISA
