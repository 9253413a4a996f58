// Sums over the rows are made in parts (sum_part). The variance is a second pass over x, so that it
// does not suffer from cancellation.
#include "ops/device_ops.h"
#include "ops/gpu/reduce.h"

namespace trireme::ops::gpu {
namespace {

struct Extents {
  std::int64_t rows, columns;
  bool vector;  // chunks are aligned
};

// target (columns) = factor * the sum of the rows of parts (count, columns).
__global__ void __launch_bounds__(256)
    store_parts_kernel(const float* parts, std::int64_t count, std::int64_t columns, float factor,
                       float* target) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const float sum = sum_of_parts(parts, count, columns, column);
  if (threadIdx.y == 0 && column < columns) target[column] = factor * sum;
}

// Parts of the sums of x or, where mean is not null, of (x - mean)^2.
template <class T>
__global__ void __launch_bounds__(256) moments_kernel(View<T> x, const float* mean, float* parts,
                                                      std::int64_t per_part, Extents extents) {
  sum_part<1>(extents.rows, extents.columns, per_part, parts,
              [&](std::int64_t row, std::int64_t column, float(&values)[1][kChunk]) {
                const std::int64_t left = extents.columns - column;
                x.load(row * extents.columns + column, left, extents.vector, values[0]);
                if (mean == nullptr) return;
#pragma unroll
                for (int i = 0; i < kChunk; ++i) {
                  const float difference = i < left ? values[0][i] - mean[column + i] : 0.0f;
                  values[0][i] = difference * difference;
                }
              });
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

// A norm as kernels see it.
struct Norm {
  const float* moments;
  View<Any> weight, bias;
  float epsilon, low, high;
};

// What a thread needs of its chunk of columns.
struct Columns {
  float mean[kChunk], rstd[kChunk], scale[kChunk], bias[kChunk];

  __device__ Columns(const Norm& norm, std::int64_t column, std::int64_t columns) {
    const std::int64_t left = columns - column;
    load_chunk(norm.moments + column, left, false, mean);
    load_chunk(norm.moments + columns + column, left, false, rstd);
    norm.weight.load(column, left, false, scale);
    norm.bias.load(column, left, false, bias);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      rstd[i] = 1.0f / sqrtf(rstd[i] + norm.epsilon);
      scale[i] *= rstd[i];
    }
  }
};

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
      const float sum = (values[i] - at.mean[i]) * at.scale[i] + at.bias[i] + rest[i];
      const float above = sum < norm.low ? norm.low : sum;
      values[i] = above > norm.high ? norm.high : above;
    }
    y.store(begin, left, extents.vector, values);
  });
}

// Loads for one chunk x - mean, and the gradient of what was clamped.
template <class T>
__device__ inline void load_gradient(const Norm& norm, const Columns& at, const View<T>& dy,
                                     const View<T>& x, const View<T>& y, std::int64_t begin,
                                     std::int64_t left, bool vector, float (&centred)[kChunk],
                                     float (&g)[kChunk]) {
  float out[kChunk] = {};
  x.load(begin, left, vector, centred);
  dy.load(begin, left, vector, g);
  if (y.defined()) y.load(begin, left, vector, out);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    centred[i] -= at.mean[i];
    if (!y.defined()) out[i] = centred[i] * at.scale[i] + at.bias[i];
    if (out[i] <= norm.low || out[i] >= norm.high) g[i] = 0.0f;
  }
}

template <class T>
__global__ void __launch_bounds__(256)
    backward_sums_kernel(Norm norm, View<T> dy, View<T> x, View<T> y, float* parts,
                         std::int64_t per_part, Extents extents) {
  const std::int64_t columns = extents.columns;
  const Columns at(norm, chunk_column() < columns ? chunk_column() : 0, columns);
  sum_part<2>(extents.rows, columns, per_part, parts,
              [&](std::int64_t row, std::int64_t column, float(&values)[2][kChunk]) {
                const std::int64_t left = columns - column;
                load_gradient(norm, at, dy, x, y, row * columns + column, left, extents.vector,
                              values[1], values[0]);
#pragma unroll
                for (int i = 0; i < kChunk; ++i) {
                  if (i >= left) values[0][i] = values[1][i] = 0.0f;
                  values[1][i] *= values[0][i] * at.rstd[i];
                }
              });
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
    float centred[kChunk], g[kChunk];
    load_gradient(norm, at, dy, x, y, begin, left, extents.vector, centred, g);
    if (dresidual.defined()) dresidual.store(begin, left, extents.vector, g);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      g[i] = at.scale[i] * (g[i] - mean_g[i] - centred[i] * slope[i]);
    }
    dx.store(begin, left, extents.vector, g);
  });
}

Norm norm_of(const BatchNorm& norm) {
  return {device_data<float>(norm.moments),
          View<Any>(norm.weight),
          View<Any>(norm.bias),
          norm.epsilon,
          norm.clamp.low,
          norm.clamp.high};
}

template <class T>
View<T> view_of(const Tensor& x) {
  return x.defined() ? View<T>(x) : View<T>();
}
// Replaces an undefined tensor, so that it does not affect the choice of a type.
const Tensor& if_defined(const Tensor& x, const Tensor& other) {
  return x.defined() ? x : other;
}

void store_parts(Context& ctx, const float* parts, std::int64_t count, std::int64_t columns,
                 float factor, float* target) {
  launch(store_parts_kernel, dim3(extent(blocks_for(columns, 32))), dim3(32, kRowsAtOnce), 0,
         ctx.stream, parts, count, columns, factor, target);
}

}  // namespace

void batch_moments(Context& ctx, const Tensor& x, const Tensor& moments) {
  const Extents extents = {x.shape()[0], x.shape()[1], vectors_fit({&x}, x.shape()[1])};
  const std::int64_t per_part = rows_of_part(extents.rows);
  const std::int64_t count = blocks_for(extents.rows, per_part);
  const Tensor parts = parts_of_row_sums(ctx, 1, extents.rows, extents.columns);
  float *mean = device_data<float>(moments), *sums = device_data<float>(parts);
  const float inverse = 1.0f / static_cast<float>(extents.rows);
  with_type({&x}, [&](auto type) {
    using T = decltype(type);
    const dim3 grid = part_grid(extents.columns, count);
    launch(moments_kernel<T>, grid, chunk_block(extents.columns), 0, ctx.stream, View<T>(x),
           static_cast<const float*>(nullptr), sums, per_part, extents);
    store_parts(ctx, sums, count, extents.columns, inverse, mean);
    launch(moments_kernel<T>, grid, chunk_block(extents.columns), 0, ctx.stream, View<T>(x),
           static_cast<const float*>(mean), sums, per_part, extents);
    store_parts(ctx, sums, count, extents.columns, inverse, mean + extents.columns);
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
  const std::int64_t per_part = rows_of_part(extents.rows);
  const std::int64_t count = blocks_for(extents.rows, per_part);
  const Tensor parts = parts_of_row_sums(ctx, 2, extents.rows, extents.columns);
  float *of_parts = device_data<float>(parts), *to = device_data<float>(sums);
  with_type({&dy, &x, &if_defined(y, x)}, [&](auto type) {
    using T = decltype(type);
    launch(backward_sums_kernel<T>, part_grid(extents.columns, count), chunk_block(extents.columns),
           0, ctx.stream, norm_of(norm), View<T>(dy), View<T>(x), view_of<T>(y), of_parts, per_part,
           extents);
  });
  for (int s = 0; s < 2; ++s) {
    store_parts(ctx, of_parts + s * count * extents.columns, count, extents.columns, 1.0f,
                to + s * extents.columns);
  }
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
