// Sums over the rows take one launch (column_pairs.h). Moments are made from differences from some
// of the values, so that they do not suffer from cancellation.
#include <type_traits>

#include "ops/device_ops.h"
#include "ops/gpu/batch_norm.h"
#include "ops/gpu/column_pairs.h"

namespace trireme::ops::gpu {
namespace {

struct Extents {
  std::int64_t rows, columns;
  bool vector;  // chunks are aligned
};

// The rows of this block's part.
__device__ inline int rows_of_block(const Extents& extents, const PartsOfPairs& at) {
  const std::int64_t left = extents.rows - blockIdx.y * at.per_part;
  return static_cast<int>(left < at.per_part ? left : at.per_part);
}
// The place of this thread's chunk in the first row of its block's part.
__device__ inline std::int64_t place_of_part(const Extents& extents, const PartsOfPairs& at) {
  return blockIdx.y * at.per_part * extents.columns + chunk_column();
}

// The means of a thread's rows less the first row of x, and the sums of squared differences from
// the means. What is summed are differences from the thread's first row, so that no digits cancel
// wherever a value lies far from the others.
template <bool kVector, class T>
__device__ inline void moments_of_thread(const View<T>& x, std::int64_t begin, int rows,
                                         std::int64_t columns, std::int64_t left, PairOfChunk& to) {
  const int first = static_cast<int>(threadIdx.y), lines = static_cast<int>(blockDim.y);
  constexpr int kBatch = kVector ? kRowsOfBatch<T> : 1;
  if (kVector) left = kChunk;
  float values[kBatch][kChunk], shift[kChunk], base[kChunk], sum[kChunk] = {}, squares[kChunk] = {};
  x.load(begin + first * columns, left, kVector, shift);
  for_rows_of_part<kBatch>(
      rows, [&](int u, int row) { x.load(begin + row * columns, left, kVector, values[u]); },
      [&](int u, bool inside) {
#pragma unroll
        for (int i = 0; i < kChunk; ++i) {
          const float difference = inside ? values[u][i] - shift[i] : 0.0f;
          sum[i] += difference;
          squares[i] += difference * difference;
        }
      });
  x.load(chunk_column(), left, kVector, base);
  to.rows = static_cast<float>((rows - first + lines - 1) / lines);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const float mean = sum[i] / to.rows, rest = squares[i] - mean * sum[i];
    to.a[i] = shift[i] - base[i] + mean;
    to.b[i] = rest < 0.0f ? 0.0f : rest;
  }
}

template <class T>
__global__ void __launch_bounds__(512, std::is_same_v<T, Any> ? 1 : 2)
    moments_kernel(View<T> x, PartsOfPairs at, float* moments, Extents extents) {
  const std::int64_t columns = extents.columns, left = columns - chunk_column();
  const std::int64_t begin = place_of_part(extents, at);
  const int rows = rows_of_block(extents, at);
  PairOfChunk mine;
  if (left > 0 && static_cast<int>(threadIdx.y) < rows) {
    if (extents.vector) {
      moments_of_thread<true>(x, begin, rows, columns, left, mine);
    } else {
      moments_of_thread<false>(x, begin, rows, columns, left, mine);
    }
  }
  if (!merge_blocks(mine, at, extents.rows, MergeMoments())) return;
  float base[kChunk];
  x.load(chunk_column(), left, extents.vector, base);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    mine.a[i] += base[i];
    mine.b[i] /= static_cast<float>(extents.rows);
  }
  store_chunk(moments + chunk_column(), left, false, mine.a);
  store_chunk(moments + columns + chunk_column(), left, false, mine.b);
}

// Each thread merges the moments of one column.
__global__ void __launch_bounds__(256) merge_moments_kernel(const float* parts, std::int64_t count,
                                                            std::int64_t columns, float* moments) {
  const std::int64_t i = static_cast<std::int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= columns) return;
  float sum = 0.0f, squares = 0.0f;
  for (std::int64_t part = 0; part < count; ++part) sum += parts[part * 2 * columns + i];
  const float mean = sum / static_cast<float>(count);
  for (std::int64_t part = 0; part < count; ++part) {
    const float difference = parts[part * 2 * columns + i] - mean;
    squares += parts[(part * 2 + 1) * columns + i] + difference * difference;
  }
  moments[i] = mean;
  moments[columns + i] = squares / static_cast<float>(count);
}

template <class T>
__global__ void __launch_bounds__(256)
    batch_norm_kernel(Norm norm, View<T> x, View<T> residual, View<T> y, Extents extents) {
  const std::int64_t column = chunk_column(), left = extents.columns - column;
  if (left <= 0) return;
  const Columns at(norm, column, extents.columns);
  for_chunk_rows(extents.rows, [&](std::int64_t row) {
    const std::int64_t begin = row * extents.columns + column;
    float values[kChunk], rest[kChunk] = {};
    x.load(begin, left, extents.vector, values);
    if (residual.defined()) residual.load(begin, left, extents.vector, rest);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      values[i] = norm.clamped((values[i] - at.mean[i]) * at.scale[i] + at.bias[i] + rest[i]);
    }
    y.store(begin, left, extents.vector, values);
  });
}

// Turns x into x - mean, and dy into the gradient of what was clamped. `out` is the norm's output
// where kHasY says so; otherwise it is made again.
template <bool kHasY>
__device__ inline void clamp_gradient(const Norm& norm, const Columns& at,
                                      const float (&out)[kChunk], float (&x)[kChunk],
                                      float (&dy)[kChunk]) {
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    x[i] -= at.mean[i];
    const float made = kHasY ? out[i] : x[i] * at.scale[i] + at.bias[i];
    if (!norm.passes(made)) dy[i] = 0.0f;
  }
}

// The sums of a thread's rows: of g, and of g (x - mean). With kHasY the output is read.
template <bool kVector, bool kHasY, class T>
__device__ inline void sums_of_thread(const Norm& norm, const View<T>& dy, const View<T>& x,
                                      const View<T>& y, std::int64_t begin, int rows,
                                      std::int64_t columns, std::int64_t left, PairOfChunk& to) {
  constexpr int kBatch = kVector ? kRowsOfBatch<T> : 1;
  const Columns at(norm, chunk_column(), columns);
  if (kVector) left = kChunk;
  float centred[kBatch][kChunk], g[kBatch][kChunk], out[kBatch][kChunk];
  for_rows_of_part<kBatch>(
      rows,
      [&](int u, int row) {
        const std::int64_t place = begin + row * columns;
        x.load(place, left, kVector, centred[u]);
        dy.load(place, left, kVector, g[u]);
        if (kHasY) y.load(place, left, kVector, out[u]);
      },
      [&](int u, bool inside) {
        clamp_gradient<kHasY>(norm, at, out[u], centred[u], g[u]);
#pragma unroll
        for (int i = 0; i < kChunk; ++i) {
          if (!inside) g[u][i] = 0.0f;
          to.a[i] += g[u][i];
          to.b[i] += inside ? g[u][i] * centred[u][i] : 0.0f;
        }
      });
}

template <class T>
__global__ void __launch_bounds__(512)
    backward_sums_kernel(Norm norm, View<T> dy, View<T> x, View<T> y, PartsOfPairs at, float* sums,
                         Extents extents) {
  const std::int64_t columns = extents.columns, left = columns - chunk_column();
  const std::int64_t begin = place_of_part(extents, at);
  const int rows = rows_of_block(extents, at);
  PairOfChunk mine;
  if (left > 0 && static_cast<int>(threadIdx.y) < rows) {
    const auto run = [&](auto vector, auto has_y) {
      sums_of_thread<vector.value, has_y.value>(norm, dy, x, y, begin, rows, columns, left, mine);
    };
    if (!extents.vector) {
      y.defined() ? run(std::false_type(), std::true_type())
                  : run(std::false_type(), std::false_type());
    } else {
      y.defined() ? run(std::true_type(), std::true_type())
                  : run(std::true_type(), std::false_type());
    }
  }
  if (!merge_blocks(mine, at, extents.rows, AddPairs()) || left <= 0) return;
  const Columns of(norm, chunk_column(), columns);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) mine.b[i] *= of.rstd[i];
  store_chunk(sums + chunk_column(), left, false, mine.a);
  store_chunk(sums + columns + chunk_column(), left, false, mine.b);
}

template <class T>
__global__ void __launch_bounds__(256)
    backward_kernel(Norm norm, View<T> dy, View<T> x, View<T> y, const float* sums, float inverse,
                    View<T> dresidual, View<T> dx, Extents extents) {
  const std::int64_t column = chunk_column(), left = extents.columns - column;
  if (left <= 0) return;
  const Columns at(norm, column, extents.columns);
  float mean_g[kChunk], slope[kChunk];
  load_chunk(sums + column, left, false, mean_g);
  load_chunk(sums + extents.columns + column, left, false, slope);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) mean_g[i] *= inverse, slope[i] *= inverse * at.rstd[i];
  for_chunk_rows(extents.rows, [&](std::int64_t row) {
    const std::int64_t begin = row * extents.columns + column;
    float centred[kChunk], g[kChunk], out[kChunk];
    x.load(begin, left, extents.vector, centred);
    dy.load(begin, left, extents.vector, g);
    if (y.defined()) {
      y.load(begin, left, extents.vector, out);
      clamp_gradient<true>(norm, at, out, centred, g);
    } else {
      clamp_gradient<false>(norm, at, out, centred, g);
    }
    if (dresidual.defined()) dresidual.store(begin, left, extents.vector, g);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      g[i] = at.scale[i] * (g[i] - mean_g[i] - centred[i] * slope[i]);
    }
    dx.store(begin, left, extents.vector, g);
  });
}

template <class T>
View<T> view_of(const Tensor& x) {
  return x.defined() ? View<T>(x) : View<T>();
}
// Replaces an undefined tensor, so that it does not affect the choice of a type.
const Tensor& if_defined(const Tensor& x, const Tensor& other) {
  return x.defined() ? x : other;
}

}  // namespace

void batch_moments(Context& ctx, const Tensor& x, const Tensor& moments) {
  const Extents extents = {x.shape()[0], x.shape()[1], vectors_fit({&x}, x.shape()[1])};
  const ColumnPairs pairs = ColumnPairs::of(extents.rows, extents.columns);
  const Tensor parts = parts_of_column_pairs(ctx, extents.rows, extents.columns);
  with_type({&x}, [&](auto type) {
    using T = decltype(type);
    launch(moments_kernel<T>, pairs_grid(pairs), pairs_block(pairs), 0, ctx.stream, View<T>(x),
           parts_of(ctx, pairs, parts), device_data<float>(moments), extents);
  });
}

void merge_batch_moments(Context& ctx, const Tensor& parts, const Tensor& moments) {
  const std::int64_t columns = parts.shape()[2];
  launch(merge_moments_kernel, extent(blocks_for(columns, 256)), 256, 0, ctx.stream,
         static_cast<const float*>(device_data<float>(parts)), parts.shape()[0], columns,
         device_data<float>(moments));
}

void batch_norm(Context& ctx, const BatchNorm& norm, const Tensor& x, const Tensor& residual,
                const Tensor& y) {
  const Extents extents = {x.shape()[0], x.shape()[1],
                           vectors_fit({&x, &residual, &y}, x.shape()[1])};
  with_type({&x, &if_defined(residual, x), &y}, [&](auto type) {
    using T = decltype(type);
    launch(batch_norm_kernel<T>, chunk_grid(extents.rows, extents.columns),
           chunk_block(extents.columns), 0, ctx.stream, norm_of(norm), View<T>(x),
           view_of<T>(residual), View<T>(y), extents);
  });
}

void batch_norm_backward_sums(Context& ctx, const BatchNorm& norm, const Tensor& dy,
                              const Tensor& x, const Tensor& y, const Tensor& sums) {
  const Extents extents = {x.shape()[0], x.shape()[1], vectors_fit({&dy, &x, &y}, x.shape()[1])};
  const ColumnPairs pairs = ColumnPairs::of(extents.rows, extents.columns);
  const Tensor parts = parts_of_column_pairs(ctx, extents.rows, extents.columns);
  with_type({&dy, &x, &if_defined(y, x)}, [&](auto type) {
    using T = decltype(type);
    launch(backward_sums_kernel<T>, pairs_grid(pairs), pairs_block(pairs), 0, ctx.stream,
           norm_of(norm), View<T>(dy), View<T>(x), view_of<T>(y), parts_of(ctx, pairs, parts),
           device_data<float>(sums), extents);
  });
}

void batch_norm_backward(Context& ctx, const BatchNorm& norm, const Tensor& dy, const Tensor& x,
                         const Tensor& y, const Tensor& sums, std::int64_t count,
                         const Tensor& dresidual, const Tensor& dx) {
  const Extents extents = {x.shape()[0], x.shape()[1],
                           vectors_fit({&dy, &x, &y, &dresidual, &dx}, x.shape()[1])};
  with_type({&dy, &x, &if_defined(y, x), &if_defined(dresidual, x), &dx}, [&](auto type) {
    using T = decltype(type);
    launch(backward_kernel<T>, chunk_grid(extents.rows, extents.columns),
           chunk_block(extents.columns), 0, ctx.stream, norm_of(norm), View<T>(dy), View<T>(x),
           view_of<T>(y), static_cast<const float*>(device_data<float>(sums)),
           1.0f / static_cast<float>(count), view_of<T>(dresidual), View<T>(dx), extents);
  });
}

}  // namespace trireme::ops::gpu
