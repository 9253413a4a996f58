// Sums over threads. Their order depends on the shape alone, so the bits are the same from run to
// run and on every device.
#pragma once

#include "ops/gpu/view.h"

namespace trireme::ops::gpu {

inline constexpr unsigned kAllLanes = 0xffffffffu;

template <class T>
__device__ inline T warp_sum(T value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

// The sum over a block of kWarps warps. All threads get it, with the same bits.
template <int kWarps, class T>
__device__ inline T block_sum(T value) {
  value = warp_sum(value);
  if constexpr (kWarps == 1) {
    return value;
  } else {
    TRIREME_SHARED(T, sums, kWarps);
    __syncthreads();  // all threads have read an earlier sum
    if (threadIdx.x % 32 == 0) sums[threadIdx.x / 32] = value;
    __syncthreads();
    T total = sums[0];
#pragma unroll
    for (int warp = 1; warp < kWarps; ++warp) total += sums[warp];
    return total;
  }
}

// The largest value of a block of kWarps warps, for all threads. A NaN is never the largest.
template <int kWarps>
__device__ inline float block_max(float value) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, value, offset);
    value = other > value ? other : value;
  }
  TRIREME_SHARED(float, largest, kWarps);
  __syncthreads();  // all threads have read an earlier one
  if (threadIdx.x % 32 == 0) largest[threadIdx.x / 32] = value;
  __syncthreads();
  value = largest[0];
#pragma unroll
  for (int warp = 1; warp < kWarps; ++warp) {
    value = largest[warp] > value ? largest[warp] : value;
  }
  return value;
}

// A block for each part of the rows and each kMostLanes chunks of a row (sum_part).
inline dim3 part_grid(std::int64_t columns, std::int64_t parts) {
  return dim3(extent(blocks_for(columns, kMostLanes * kChunk)), extent(parts));
}
// Sums kSums values for each column over this block's part of the rows. term(row, column, values)
// sets the values of one chunk. The first `used` of the sums are written to parts (used, parts,
// columns). Launched with part_grid and chunk_block; its rows of threads add up every so many rows,
// then these sums are added in order.
template <int kSums, class Term>
__device__ inline void sum_part(std::int64_t rows, std::int64_t columns, std::int64_t per_part,
                                float* parts, const Term& term, int used = kSums) {
  const int lines = static_cast<int>(blockDim.y);
  const int width = static_cast<int>(blockDim.x) * kChunk;
  const std::int64_t column = chunk_column();
  const std::int64_t first = blockIdx.y * per_part;
  const std::int64_t end = first + per_part < rows ? first + per_part : rows;
  float sums[kSums][kChunk] = {};
  if (column < columns) {
#pragma unroll 4
    for (std::int64_t row = first + threadIdx.y; row < end; row += lines) {
      float values[kSums][kChunk];
      term(row, column, values);
#pragma unroll
      for (int s = 0; s < kSums; ++s) {
#pragma unroll
        for (int i = 0; i < kChunk; ++i) sums[s][i] += values[s][i];
      }
    }
  }
  TRIREME_SHARED(float, shared, kRowsAtOnce* kMostLanes* kChunk);
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const std::int64_t mine = static_cast<std::int64_t>(blockIdx.x) * width + thread;
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kChunk; ++i) shared[thread * kChunk + i] = sums[s][i];
    __syncthreads();
    if (s >= used || thread >= width || mine >= columns) continue;
    float total = 0.0f;
    for (int y = 0; y < lines; ++y) total += shared[y * width + thread];
    parts[(static_cast<std::int64_t>(s) * gridDim.y + blockIdx.y) * columns + mine] = total;
  }
}

// The sum of a column of parts (count, columns), in an order that depends on `count` alone. Threads
// with threadIdx.y 0 get it, the others 0. For blocks of 32 columns x kRowsAtOnce.
__device__ inline float sum_of_parts(const float* parts, std::int64_t count, std::int64_t columns,
                                     std::int64_t column) {
  TRIREME_SHARED(float, sums, 32 * kRowsAtOnce);
  float sum = 0.0f;
  if (column < columns) {
#pragma unroll 4
    for (std::int64_t part = threadIdx.y; part < count; part += kRowsAtOnce) {
      sum += parts[part * columns + column];
    }
  }
  sums[threadIdx.y * 32 + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0) return 0.0f;
  for (int y = 1; y < kRowsAtOnce; ++y) sum += sums[y * 32 + threadIdx.x];
  return sum;
}

// target (columns) += the sum of the rows of parts (count, columns).
static __global__ void __launch_bounds__(256)
    add_parts_kernel(const float* parts, std::int64_t count, std::int64_t columns, float* target) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const float sum = sum_of_parts(parts, count, columns, column);
  if (threadIdx.y == 0 && column < columns) target[column] += sum;
}

inline void add_parts(const Stream& stream, const float* parts, std::int64_t count,
                      std::int64_t columns, float* target) {
  launch(add_parts_kernel, dim3(extent(blocks_for(columns, 32))), dim3(32, kRowsAtOnce), 0, stream,
         parts, count, columns, target);
}

}  // namespace trireme::ops::gpu
