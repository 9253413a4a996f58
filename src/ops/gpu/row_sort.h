// Sorts rows by a key, stably: a radix sort by digits of eight bits, the lowest first. Its kernels,
// their grids and its memory depend on the number of rows and the largest key alone.
#pragma once

#include "trireme/ops/context.h"

#include "ops/gpu/reduce.h"

namespace trireme::ops::gpu {

// A key (high 32 bits) and its row (low 32 bits) in one word.
using KeyedRow = std::int64_t;
__device__ inline KeyedRow keyed_row(std::int64_t key, std::int64_t row) {
  return key << 32 | row;
}
__device__ inline std::int64_t key_of(KeyedRow item) {
  return item >> 32;
}
__device__ inline std::int64_t row_of(KeyedRow item) {
  return item & 0xffffffff;
}

inline constexpr int kSortThreads = kDigits;  // counting uses one thread per digit
inline constexpr int kSortWarps = kSortThreads / 32;
inline constexpr int kRowsOfThread = kSortTile / kSortThreads;

__device__ inline int digit_of(KeyedRow item, int shift) {
  return static_cast<int>(item >> shift) & (kDigits - 1);
}

// A warp takes 32 x kRowsOfThread neighbouring items, and each lane every 32nd of them. `mine`: the
// thread's items. `rank`: for each, the number of items of its warp that have the same digit and
// come before it. counts (kSortWarps, kDigits): the number of items of each warp with each digit.
// Ends with a barrier.
template <class Source>
__device__ inline void rank_tile(const Source& source, std::int64_t rows, int shift, int* counts,
                                 KeyedRow (&mine)[kRowsOfThread], int (&rank)[kRowsOfThread]) {
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  for (int i = static_cast<int>(threadIdx.x); i < kSortWarps * kDigits; i += kSortThreads) {
    counts[i] = 0;
  }
  __syncthreads();
  int* const of_warp = counts + warp * kDigits;
  std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kSortTile + warp * 32 * kRowsOfThread;
  at += lane;
#pragma unroll
  for (int k = 0; k < kRowsOfThread; ++k, at += 32) {
    const bool here = at < rows;
    mine[k] = here ? source(at) : 0;
    const int digit = digit_of(mine[k], shift);
    unsigned same = __ballot_sync(kAllLanes, here ? 1 : 0);
#pragma unroll
    for (int bit = 1; bit < kDigits; bit *= 2) {
      const unsigned votes = __ballot_sync(kAllLanes, digit & bit);
      same &= (digit & bit) != 0 ? votes : ~votes;
    }
    const unsigned before = same & ((1u << lane) - 1u);
    rank[k] = of_warp[digit] + __popc(before);
    __syncwarp();
    if (here && before == 0) of_warp[digit] += __popc(same);
    __syncwarp();
  }
  __syncthreads();
}

// Writes counts (tiles, kDigits): the number of rows of a tile that have a digit.
template <class Source>
__global__ void __launch_bounds__(kSortThreads)
    count_digits_kernel(Source source, std::int64_t rows, int shift, int* counts) {
  TRIREME_SHARED(int, of_warps, kSortWarps* kDigits);
  KeyedRow mine[kRowsOfThread];
  int rank[kRowsOfThread];
  rank_tile(source, rows, shift, of_warps, mine, rank);
  int count = 0;
  for (int warp = 0; warp < kSortWarps; ++warp) count += of_warps[warp * kDigits + threadIdx.x];
  counts[static_cast<std::int64_t>(blockIdx.x) * kDigits + threadIdx.x] = count;
}

// The sum of the values of the threads before this one.
__device__ inline int sum_before(int value) {
  TRIREME_SHARED(int, of_warp, kSortWarps);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  int sum = value;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const int other = __shfl_up_sync(kAllLanes, sum, static_cast<unsigned>(offset));
    if (lane >= offset) sum += other;
  }
  if (lane == 31) of_warp[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) sum += of_warp[w];
  return sum - value;
}

// Writes each row to its place: after all rows with lower digits and all earlier rows with the same
// digit.
template <class Source>
__global__ void __launch_bounds__(kSortThreads)
    place_rows_kernel(Source source, std::int64_t rows, int shift, const int* counts,
                      KeyedRow* sorted) {
  TRIREME_SHARED(int, of_warps, kSortWarps* kDigits);
  KeyedRow mine[kRowsOfThread];
  int rank[kRowsOfThread];
  rank_tile(source, rows, shift, of_warps, mine, rank);
  int all = 0, before = 0;
#pragma unroll 4
  for (unsigned tile = 0; tile < gridDim.x; ++tile) {
    const int count = counts[static_cast<std::int64_t>(tile) * kDigits + threadIdx.x];
    all += count;
    before += tile < blockIdx.x ? count : 0;
  }
  int place = sum_before(all) + before;
  for (int warp = 0; warp < kSortWarps; ++warp) {
    int& of_warp = of_warps[warp * kDigits + threadIdx.x];
    const int count = of_warp;
    of_warp = place;
    place += count;
  }
  __syncthreads();
  const int warp = static_cast<int>(threadIdx.x / 32), lane = static_cast<int>(threadIdx.x % 32);
  std::int64_t at = static_cast<std::int64_t>(blockIdx.x) * kSortTile + warp * 32 * kRowsOfThread;
  at += lane;
#pragma unroll
  for (int k = 0; k < kRowsOfThread; ++k, at += 32) {
    if (at >= rows) continue;
    sorted[of_warps[warp * kDigits + digit_of(mine[k], shift)] + rank[k]] = mine[k];
  }
}

struct SortedBefore {
  const KeyedRow* items;
  __device__ KeyedRow operator()(std::int64_t at) const { return items[at]; }
};

// Returns the sorted rows as a tensor (rows) of KeyedRow. source(row) is the KeyedRow of a row,
// with a key in [0, largest].
template <class Source>
Tensor sort_rows(Context& ctx, const Source& source, std::int64_t rows, std::int64_t largest) {
  const std::int64_t tiles = blocks_for(rows, kSortTile);
  const Tensor counts = counts_of_sort(ctx, rows);
  const auto pass = [&](const auto& from, int shift) {
    Tensor to = rows_of_sort(ctx, rows);
    using From = std::decay_t<decltype(from)>;
    launch(count_digits_kernel<From>, extent(tiles), kSortThreads, 0, ctx.stream, from, rows, shift,
           device_data<int>(counts));
    launch(place_rows_kernel<From>, extent(tiles), kSortThreads, 0, ctx.stream, from, rows, shift,
           device_data<int>(counts), device_data<KeyedRow>(to));
    return to;
  };
  const int bits = bits_of_sort(largest);
  Tensor sorted = pass(source, 32);
  for (int shift = 32 + 8; shift < 32 + bits; shift += 8) {
    sorted = pass(SortedBefore{device_data<KeyedRow>(sorted)}, shift);
  }
  return sorted;
}

}  // namespace trireme::ops::gpu
