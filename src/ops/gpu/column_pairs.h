// Two values of each column over all rows in one launch: blocks make those of parts of the rows,
// and the block that ends last merges them. The order depends on the shape alone, not on which
// block that is.
#pragma once

#include "ops/gpu/view.h"

namespace trireme::ops::gpu {

static_assert(ColumnPairs::kChunk == kChunk && ColumnPairs::kMostLanes == kMostLanes);

// Counts this block as done. Returns true in the last of `blocks` blocks, which then sees what all
// of them wrote before, if it reads with __ldcg. The counter is zero before and after the launch:
// the last block's count sets it back. Launches that share a counter follow each other.
__device__ inline bool is_last_block(unsigned* counter, unsigned blocks) {
  TRIREME_SHARED(unsigned, before, 1);
  __threadfence();
  __syncthreads();
  if (threadIdx.x == 0 && threadIdx.y == 0) before[0] = atomicInc(counter, blocks - 1);
  __syncthreads();
  const bool last = before[0] == blocks - 1;
  if (last) __threadfence();
  return last;
}

// Two values of each column of a chunk, over `rows` rows.
struct PairOfChunk {
  float rows = 0.0f;
  float a[kChunk] = {}, b[kChunk] = {};
};

struct AddPairs {
  __device__ void operator()(PairOfChunk& to, const PairOfChunk& more) const {
#pragma unroll
    for (int i = 0; i < kChunk; ++i) to.a[i] += more.a[i], to.b[i] += more.b[i];
  }
};
// For means and sums of squared differences from them (Chan, Golub and LeVeque 1979).
struct MergeMoments {
  __device__ void operator()(PairOfChunk& to, const PairOfChunk& more) const {
    const float rows = to.rows + more.rows;
    if (more.rows == 0.0f) return;
    const float share = more.rows / rows, weight = to.rows * share;
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      const float difference = more.a[i] - to.a[i];
      to.a[i] += difference * share;
      to.b[i] += more.b[i] + difference * difference * weight;
    }
    to.rows = rows;
  }
};

// Where blocks leave what they made: parts (gridDim.y, 2, width).
struct PartsOfPairs {
  float* parts;
  unsigned* counters;  // one for each group of columns
  std::int64_t per_part, width;
};

// What the threads of a block have is merged in the threads of line 0, by halves.
template <class Merge>
__device__ inline void merge_lines(PairOfChunk& mine, const Merge& merge) {
  constexpr int kSlots = ColumnPairs::kThreads / 2;
  TRIREME_SHARED(float, slots, (1 + 2 * kChunk) * kSlots);
  const int lanes = static_cast<int>(blockDim.x), y = static_cast<int>(threadIdx.y);
  for (int lines = static_cast<int>(blockDim.y); lines > 1;) {
    const int half = (lines + 1) / 2;
    if (half <= y && y < lines) {
      float* const to = slots + (y - half) * lanes + threadIdx.x;
      to[0] = mine.rows;
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        to[(1 + i) * kSlots] = mine.a[i], to[(1 + kChunk + i) * kSlots] = mine.b[i];
      }
    }
    __syncthreads();
    if (y + half < lines) {
      const float* const from = slots + y * lanes + threadIdx.x;
      PairOfChunk more;
      more.rows = from[0];
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        more.a[i] = from[(1 + i) * kSlots], more.b[i] = from[(1 + kChunk + i) * kSlots];
      }
      merge(mine, more);
    }
    __syncthreads();
    lines = half;
  }
}

__device__ inline void load_part(const float* from, float (&values)[kChunk]) {
  const float4 low = __ldcg(reinterpret_cast<const float4*>(from));
  const float4 high = __ldcg(reinterpret_cast<const float4*>(from) + 1);
  values[0] = low.x, values[1] = low.y, values[2] = low.z, values[3] = low.w;
  values[4] = high.x, values[5] = high.y, values[6] = high.z, values[7] = high.w;
}

// Merges what the threads of all blocks of a group of columns have: `mine` of each thread is over
// its rows of its part. Returns true in the threads whose `mine` then is over all rows: those of
// line 0 of one block. All threads of the grid call it.
template <class Merge>
__device__ inline bool merge_blocks(PairOfChunk& mine, const PartsOfPairs& at, std::int64_t rows,
                                    const Merge& merge) {
  merge_lines(mine, merge);
  const std::int64_t column = chunk_column();
  if (threadIdx.y == 0) {
    float* const to = at.parts + 2 * blockIdx.y * at.width + column;
    store_vector(to, mine.a);
    store_vector(to + at.width, mine.b);
  }
  if (!is_last_block(at.counters + blockIdx.x, gridDim.y)) return false;
  mine = PairOfChunk();
#pragma unroll 2
  for (std::int64_t part = threadIdx.y; part < gridDim.y; part += blockDim.y) {
    const float* const from = at.parts + 2 * part * at.width + column;
    const std::int64_t left = rows - part * at.per_part;
    PairOfChunk more;
    more.rows = static_cast<float>(left < at.per_part ? left : at.per_part);
    load_part(from, more.a);
    load_part(from + at.width, more.b);
    merge(mine, more);
  }
  merge_lines(mine, merge);
  return threadIdx.y == 0;
}

inline dim3 pairs_block(const ColumnPairs& pairs) {
  return dim3(extent(pairs.lanes), extent(pairs.lines));
}
inline dim3 pairs_grid(const ColumnPairs& pairs) {
  return dim3(extent(pairs.groups), extent(pairs.parts));
}
inline PartsOfPairs parts_of(Context& ctx, const ColumnPairs& pairs, const Tensor& parts) {
  TRIREME_CHECK(pairs.groups <= kBlockCounters, "a tensor has too many columns for its sums");
  return {device_data<float>(parts), static_cast<unsigned*>(ctx.block_counters.raw()),
          pairs.per_part, pairs.width()};
}

// The rows of a batch: 64 bytes of a type's elements, but one row of a type that is known at run
// time only.
template <class T>
inline constexpr int kRowsOfBatch = sizeof(T) == 2 ? 4 : 2;
template <>
inline constexpr int kRowsOfBatch<Any> = 1;

// The rows of this block's part that belong to a thread, in batches of which all loads come first:
// load(u, row) for each row of a batch, with the last one again beyond the end, then
// add(u, inside). Rows count from the part's first one.
template <int kBatch, class Load, class Add>
__device__ inline void for_rows_of_part(int rows, const Load& load, const Add& add) {
  const int lines = static_cast<int>(blockDim.y);
  for (int row = static_cast<int>(threadIdx.y); row < rows; row += kBatch * lines) {
#pragma unroll
    for (int u = 0; u < kBatch; ++u) {
      const int at = row + u * lines;
      load(u, at < rows ? at : row);
    }
#pragma unroll
    for (int u = 0; u < kBatch; ++u) add(u, row + u * lines < rows);
  }
}

}  // namespace trireme::ops::gpu
