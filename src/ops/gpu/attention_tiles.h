// Code that the fp32 kernels of attention share: tiles of queries and keys in shared memory, as
// fp32, and their products by blocks of 16 x 16 threads. Plain arithmetic without tensor cores:
// these kernels compute what nothing faster does, and serve as the reference.
#pragma once

#include "ops/gpu/attention_problem.h"
#include "ops/gpu/reduce.h"

namespace trireme::ops::gpu {

inline constexpr int kAttentionThreads = 256;
// Without the bound, ptxas spills registers to fit a third block per multiprocessor of a B200.
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ == 1000
#define TRIREME_ATTENTION_BOUNDS __launch_bounds__(kAttentionThreads, 2)
#else
#define TRIREME_ATTENTION_BOUNDS __launch_bounds__(kAttentionThreads)
#endif

// The dimensions of a kernel for head sizes up to kDepth. A tile has kTile rows. Each thread takes
// kRows rows, kRows columns of the scores, and kColumns columns of a head.
template <int columns, int rows>
struct AttentionTile {
  static constexpr int kRows = rows, kColumns = columns;
  static constexpr int kTile = 16 * rows, kDepth = 16 * columns;
  static constexpr int kStride = kDepth + 1;      // of a row of a head; odd, against bank conflicts
  static constexpr int kScoreStride = kTile + 1;  // of a row of scores
  static constexpr int kPanel = kTile * kStride;  // floats
  static constexpr int kScores = kTile * kScoreStride;
};

__device__ inline int tile_x() {
  return static_cast<int>(threadIdx.x % 16);
}
__device__ inline int tile_y() {
  return static_cast<int>(threadIdx.x / 16);
}

// Loads rows [begin, end) of a head, at most a tile, into `panel`. The rest of the panel becomes 0.
template <class Tile>
__device__ inline void load_tile(const Heads& heads, std::int64_t first, std::int64_t begin,
                                 std::int64_t end, int head_size, float* panel) {
  for (int i = static_cast<int>(threadIdx.x); i < Tile::kTile * Tile::kDepth;
       i += kAttentionThreads) {
    const int row = i / Tile::kDepth, d = i % Tile::kDepth;
    const bool inside = begin + row < end && d < head_size;
    panel[row * Tile::kStride + d] =
        inside ? heads.data.at(first + (begin + row) * heads.row + d) : 0.0f;
  }
}

// Stores the thread's part of a tile of a head: rows tile_y() + 16 i, columns tile_x() + 16 j.
template <class Tile>
__device__ inline void store_tile(const Heads& heads, std::int64_t first, std::int64_t begin,
                                  std::int64_t end, int head_size,
                                  const float (&values)[Tile::kRows][Tile::kColumns]) {
#pragma unroll
  for (int i = 0; i < Tile::kRows; ++i) {
    const std::int64_t row = begin + tile_y() + 16 * i;
#pragma unroll
    for (int j = 0; j < Tile::kColumns; ++j) {
      const int d = tile_x() + 16 * j;
      if (row < end && d < head_size) heads.data.set(first + row * heads.row + d, values[i][j]);
    }
  }
}

// scores[i][j] = the dot product of rows tile_y() + 16 i of a and tile_x() + 16 j of b.
template <class Tile>
__device__ inline void dot_rows(const float* a, const float* b,
                                float (&scores)[Tile::kRows][Tile::kRows]) {
#pragma unroll
  for (int i = 0; i < Tile::kRows; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::kRows; ++j) scores[i][j] = 0.0f;
  }
#pragma unroll 4
  for (int d = 0; d < Tile::kDepth; ++d) {
    float left[Tile::kRows], right[Tile::kRows];
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
      left[i] = a[(tile_y() + 16 * i) * Tile::kStride + d];
      right[i] = b[(tile_x() + 16 * i) * Tile::kStride + d];
    }
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kRows; ++j) scores[i][j] += left[i] * right[j];
    }
  }
}

// sums[i][j] += the sum over k of scores(tile_y() + 16 i, k) * rows(k, tile_x() + 16 j). With
// kTransposed it reads scores(k, tile_y() + 16 i) instead.
template <class Tile, bool kTransposed>
__device__ inline void add_weighted(const float* scores, const float* rows,
                                    float (&sums)[Tile::kRows][Tile::kColumns]) {
#pragma unroll 4
  for (int k = 0; k < Tile::kTile; ++k) {
    float weight[Tile::kRows];
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
      const int mine = tile_y() + 16 * i;
      weight[i] = kTransposed ? scores[k * Tile::kScoreStride + mine]
                              : scores[mine * Tile::kScoreStride + k];
    }
#pragma unroll
    for (int j = 0; j < Tile::kColumns; ++j) {
      const float value = rows[k * Tile::kStride + tile_x() + 16 * j];
#pragma unroll
      for (int i = 0; i < Tile::kRows; ++i) sums[i][j] += weight[i] * value;
    }
  }
}

// Calls body(AttentionTile) with the tile for a head size. Larger heads have smaller tiles, so that
// 99 KiB of shared memory are enough; every GPU since Ampere allows a block that much. Throws
// InternalError for head sizes above 256.
template <class Body>
void with_tile(std::int64_t head_size, const Body& body) {
  if (head_size <= 16) return body(AttentionTile<1, 4>());
  if (head_size <= 32) return body(AttentionTile<2, 4>());
  if (head_size <= 64) return body(AttentionTile<4, 4>());
  if (head_size <= 128) return body(AttentionTile<8, 2>());
  TRIREME_CHECK(head_size <= 256, "attention on a GPU without cuDNN: the head size is " +
                                      std::to_string(head_size) + ", above 256");
  body(AttentionTile<16, 1>());
}

}  // namespace trireme::ops::gpu
