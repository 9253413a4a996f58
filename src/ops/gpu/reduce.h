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
// Adds the sums of the block's rows of threads in order, and writes them to parts (used, parts,
// columns). A thread's are those of the chunk at chunk_column().
template <int kSums>
__device__ inline void write_part(const float (&sums)[kSums][kChunk], std::int64_t columns,
                                  float* parts, int used = kSums) {
  const int lines = static_cast<int>(blockDim.y);
  const int width = static_cast<int>(blockDim.x) * kChunk;
  TRIREME_SHARED(float, shared, kRowsAtOnce* kMostLanes* kChunk);
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int threads = lines * static_cast<int>(blockDim.x);
  const std::int64_t begin = static_cast<std::int64_t>(blockIdx.x) * width;  // the first column
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kChunk; ++i) shared[thread * kChunk + i] = sums[s][i];
    __syncthreads();
    if (s >= used) continue;
    float* const to = parts + (static_cast<std::int64_t>(s) * gridDim.y + blockIdx.y) * columns;
    for (int i = thread; i < width && begin + i < columns; i += threads) {
      float total = 0.0f;
      for (int y = 0; y < lines; ++y) total += shared[y * width + i];
      to[begin + i] = total;
    }
  }
}
// Sums kSums values for each column over this block's part of the rows. term(row, column, values)
// sets the values of one chunk. The first `used` of the sums are written to parts (used, parts,
// columns). Launched with part_grid and chunk_block, or fewer rows of threads; they add up every so
// many rows, then write_part adds theirs.
template <int kSums, class Term>
__device__ inline void sum_part(std::int64_t rows, std::int64_t columns, std::int64_t per_part,
                                float* parts, const Term& term, int used = kSums) {
  const int lines = static_cast<int>(blockDim.y);
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
  write_part(sums, columns, parts, used);
}
// The same sums of x, whose chunks are aligned. A thread reads kAtOnce rows before it adds the
// first: where a read may take one of two ways, as in sum_part, each waits for the one before.
template <int kAtOnce, class T>
__device__ inline void sum_part_of_chunks(const T* x, std::int64_t rows, std::int64_t columns,
                                          std::int64_t per_part, float* parts) {
  const int lines = static_cast<int>(blockDim.y);
  const std::int64_t column = chunk_column();
  const std::int64_t row = blockIdx.y * per_part + threadIdx.y, step = lines * columns;
  const T* from = x + row * columns + column;
  float sums[1][kChunk] = {};
  if (column < columns) {
    const std::int64_t of_block = rows - blockIdx.y * per_part;
    int left = static_cast<int>((of_block < per_part ? of_block : per_part) - threadIdx.y);
    for (; left > 0; left -= kAtOnce * lines, from += kAtOnce * step) {
      RawChunk<T> chunks[kAtOnce];
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        if (n * lines < left) chunks[n] = load_raw(from + n * step);
      }
#pragma unroll
      for (int n = 0; n < kAtOnce; ++n) {
        float values[kChunk];
        unpack(chunks[n], values);  // zeros beyond the part
#pragma unroll
        for (int i = 0; i < kChunk; ++i) sums[0][i] += values[i];
      }
    }
  }
  write_part(sums, columns, parts);
}

// The sum of a column of parts (count, columns), in an order that depends on `count` alone. Threads
// with threadIdx.y 0 get it, the others 0. For blocks of 32 columns x kLines.
template <int kLines = kRowsAtOnce>
__device__ inline float sum_of_parts(const float* parts, std::int64_t count, std::int64_t columns,
                                     std::int64_t column) {
  TRIREME_SHARED(float, sums, 32 * kLines);
  float sum = 0.0f;
  if (column < columns) {
#pragma unroll 16
    for (std::int64_t part = threadIdx.y; part < count; part += kLines) {
      sum += parts[part * columns + column];
    }
  }
  sums[threadIdx.y * 32 + threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0) return 0.0f;
  for (int y = 1; y < kLines; ++y) sum += sums[y * 32 + threadIdx.x];
  return sum;
}

// target (columns) += the sum of the rows of parts (count, columns), and `second` += that of the
// count rows after these if the grid's second extent is 2.
static __global__ void __launch_bounds__(256)
    add_parts_kernel(const float* parts, std::int64_t count, std::int64_t columns, float* target,
                     float* second) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const float sum = sum_of_parts(parts + blockIdx.y * count * columns, count, columns, column);
  float* const to = blockIdx.y == 0 ? target : second;
  if (threadIdx.y == 0 && column < columns) to[column] += sum;
}

inline void add_parts(const Stream& stream, const float* parts, std::int64_t count,
                      std::int64_t columns, float* target, float* second = nullptr) {
  launch(add_parts_kernel, dim3(extent(blocks_for(columns, 32)), second == nullptr ? 1 : 2),
         dim3(32, kRowsAtOnce), 0, stream, parts, count, columns, target, second);
}

}  // namespace trireme::ops::gpu
