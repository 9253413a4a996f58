// The batch norms around a convolution by tiles (depthwise.h): what its kernels normalise while
// they read, and what they sum up for each channel while they write. Each thread has two channels.
// The order of the sums depends on the shape alone, as that of column_pairs.h does.
#pragma once

#include <type_traits>

#include "ops/gpu/batch_norm.h"
#include "ops/gpu/column_pairs.h"

namespace trireme::ops::gpu {

// What a kernel gets that has no norms around it.
struct NoNorms {};

struct TileNorms {
  Norm before;         // of what the convolution reads
  float* pairs;        // (2, channels), what is summed up; null: nothing is
  float* parts;        // parts_of_tiles
  unsigned* counters;  // one for each group of channels
};

// What `width` channels from `first` on are normalised with, in shared memory: means, scales and
// biases (3, kMostChannels), zeros beyond the tensor's channels. The threads of the block meet
// before they read it.
__device__ inline const float* load_tile_norm(const Norm& norm, std::int64_t first, int width,
                                              std::int64_t channels) {
  constexpr int kMost = DepthwiseTiles::kMostChannels;
  TRIREME_SHARED(float4, memory, 3 * kMost / 4);
  auto* const table = reinterpret_cast<float*>(memory);
  const int threads = static_cast<int>(blockDim.x * blockDim.y);
  for (int i = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x); i < width; i += threads) {
    const std::int64_t c = first + i;
    const bool has = c < channels;
    table[i] = has ? norm.moments[c] : 0.0f;
    table[kMost + i] = has ? norm.weight.at(c) * norm.rstd(norm.moments[channels + c]) : 0.0f;
    table[2 * kMost + i] = has ? norm.bias.at(c) : 0.0f;
  }
  return table;
}

// What such a table has for kCount channels from `lane` on.
template <int kCount>
struct TileNorm {
  float mean[kCount] = {}, scale[kCount] = {}, bias[kCount] = {};

  TileNorm() = default;
  __device__ TileNorm(const float* table, int lane) {
    constexpr int kMost = DepthwiseTiles::kMostChannels;
    load(table + lane, mean);
    load(table + kMost + lane, scale);
    load(table + 2 * kMost + lane, bias);
  }
  // What batch_norm makes of a value, before its clamp.
  __device__ float made(float value, int i) const { return (value - mean[i]) * scale[i] + bias[i]; }

 private:
  __device__ static void load(const float* from, float (&values)[kChunk]) {
    load_vector(from, values);
  }
  __device__ static void load(const float* from, float (&values)[2]) { load_pair(from, values); }
};

// Turns two values into what they are read back as after a store.
template <class T>
__device__ inline void round_pair(float (&values)[2]) {
#pragma unroll
  for (int c = 0; c < 2; ++c) values[c] = View<T>::rounded(values[c]);
}

// Two values of each of a thread's two channels, over `rows` pixels.
struct PairOfLane {
  float rows = 0.0f;
  float a[2] = {}, b[2] = {};

  __device__ void add(const PairOfLane& more) {
    rows += more.rows;
#pragma unroll
    for (int c = 0; c < 2; ++c) a[c] += more.a[c], b[c] += more.b[c];
  }
  // Turns means less a base, and sums of squared differences from the means, into sums of
  // differences from the base and of their squares, which can be added.
  __device__ void to_sums() {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float sum = a[c] * rows;
      b[c] += a[c] * sum, a[c] = sum;
    }
  }
  // The way back. `rows` is not zero.
  __device__ void to_means() {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      const float mean = a[c] / rows, rest = b[c] - mean * a[c];
      a[c] = mean, b[c] = rest < 0.0f ? 0.0f : rest;
    }
  }
};

// The moments of what a thread writes. What is summed are differences from its first values, so
// that no digits cancel.
struct TileMoments {
  int rows = 0;
  float shift[2] = {}, sum[2] = {}, squares[2] = {};

  __device__ void add(const float (&values)[2]) {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      if (rows == 0) shift[c] = values[c];
      const float difference = values[c] - shift[c];
      sum[c] += difference;
      squares[c] += difference * difference;
    }
    ++rows;
  }
  // Means, and sums of squared differences from them.
  __device__ PairOfLane pair() const {
    PairOfLane made;
    if (rows == 0) return made;
    made.rows = static_cast<float>(rows);
#pragma unroll
    for (int c = 0; c < 2; ++c) made.a[c] = sum[c], made.b[c] = squares[c];
    made.to_means();
    made.a[0] += shift[0], made.a[1] += shift[1];
    return made;
  }
};

// Floats of shared memory that merge_tiles needs for each thread.
inline constexpr int kFloatsOfMerge = 5;

// What the threads of a pair of channels have is added up in the one of line 0, in order.
__device__ inline void add_positions(PairOfLane& mine, float* shared) {
  const int lanes = static_cast<int>(blockDim.x), lines = static_cast<int>(blockDim.y);
  const int threads = lanes * lines;
  const int y = static_cast<int>(threadIdx.y), x = static_cast<int>(threadIdx.x);
  __syncthreads();  // all threads have read what was there before
  float* const to = shared + y * lanes + x;
  to[0] = mine.rows;
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    to[(1 + c) * threads] = mine.a[c], to[(3 + c) * threads] = mine.b[c];
  }
  __syncthreads();
  if (y != 0) return;
  for (int other = 1; other < lines; ++other) {
    const float* const from = shared + other * lanes + x;
    PairOfLane more;
    more.rows = from[0];
#pragma unroll
    for (int c = 0; c < 2; ++c) {
      more.a[c] = from[(1 + c) * threads], more.b[c] = from[(3 + c) * threads];
    }
    mine.add(more);
  }
}

__device__ inline void load_part(const float* from, float (&values)[2]) {
  const float2 pair = __ldcg(reinterpret_cast<const float2*>(from));
  values[0] = pair.x, values[1] = pair.y;
}

// Merges what the threads of all blocks of a group of channels have: sums, or with kMoments means
// and sums of squared differences from them (Chan, Golub and LeVeque 1979). Returns true in the
// threads whose `mine` is then over all tiles: those of line 0 of one block. All threads of the
// grid call it. A block has `channels` channels.
template <bool kMoments>
__device__ inline bool merge_tiles(PairOfLane& mine, const TileNorms& norms, int channels,
                                   float* shared) {
  // Means are added as differences from one of them: the first thread's, then the first part's.
  float base[2] = {};
  if (kMoments) {
    const int lane = 2 * static_cast<int>(threadIdx.x);
    __syncthreads();  // all threads have read the last tile
    if (threadIdx.y == 0) store_pair(shared + lane, mine.a);
    __syncthreads();
    load_pair(shared + lane, base);
    mine.a[0] -= base[0], mine.a[1] -= base[1];
    mine.to_sums();
  }
  add_positions(mine, shared);
  const std::int64_t width = static_cast<std::int64_t>(gridDim.x) * channels;
  float* const parts =
      norms.parts + static_cast<std::int64_t>(blockIdx.x) * channels + 2 * threadIdx.x;
  if (threadIdx.y == 0) {
    if (kMoments) mine.to_means();
    float* const to = parts + 3 * blockIdx.y * width;
    store_pair(to, {base[0] + mine.a[0], base[1] + mine.a[1]});
    store_pair(to + width, mine.b);
    if (kMoments) store_pair(to + 2 * width, {mine.rows, mine.rows});
  }
  if (!is_last_block(norms.counters + blockIdx.x, gridDim.y)) return false;
  if (kMoments) load_part(parts, base);
  mine = PairOfLane();
  const float* from = parts + 3 * threadIdx.y * width;
  const std::int64_t step = 3 * blockDim.y * width;
#pragma unroll 4
  for (unsigned part = threadIdx.y; part < gridDim.y; part += blockDim.y, from += step) {
    PairOfLane more;
    load_part(from, more.a);
    load_part(from + width, more.b);
    if (kMoments) {
      float rows[2];
      load_part(from + 2 * width, rows);
      more.rows = rows[0];
      more.a[0] -= base[0], more.a[1] -= base[1];
      more.to_sums();
    }
    mine.add(more);
  }
  add_positions(mine, shared);
  if (threadIdx.y != 0) return false;
  if (kMoments) {
    mine.to_means();
    mine.a[0] += base[0], mine.a[1] += base[1];
  }
  return true;
}

// Writes two values of a thread's channels, of which `left` exist from `first` on, to
// norms.pairs (2, channels).
__device__ inline void write_pair(const PairOfLane& pair, const TileNorms& norms,
                                  std::int64_t first, std::int64_t left, std::int64_t channels) {
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    if (c >= left) continue;
    norms.pairs[first + c] = pair.a[c];
    norms.pairs[channels + first + c] = pair.b[c];
  }
}

// Moments of what all threads of the grid have. `of_block`: the channels of a block.
__device__ inline void write_moments(const TileMoments& mine, const TileNorms& norms,
                                     std::int64_t first, std::int64_t left, std::int64_t channels,
                                     int of_block, float* shared) {
  PairOfLane pair = mine.pair();
  if (!merge_tiles<true>(pair, norms, of_block, shared)) return;
#pragma unroll
  for (int c = 0; c < 2; ++c) pair.b[c] /= pair.rows;
  write_pair(pair, norms, first, left, channels);
}

// The sums of batch_norm_backward_sums. A thread has those of g and of g (x - mean).
__device__ inline void write_sums(PairOfLane& mine, const TileNorms& norms, std::int64_t first,
                                  std::int64_t left, std::int64_t channels, int of_block,
                                  float* shared) {
  if (!merge_tiles<false>(mine, norms, of_block, shared)) return;
#pragma unroll
  for (int c = 0; c < 2; ++c) {
    if (c < left) mine.b[c] *= norms.before.rstd(norms.before.moments[channels + first + c]);
  }
  write_pair(mine, norms, first, left, channels);
}

}  // namespace trireme::ops::gpu
