// Backward attention. With weights P and their gradients dP = dO V^T: dS = P (dP - delta) slope,
// then dV = P^T dO, dK = dS^T Q, dQ = dS K. One kernel owns tiles of keys, another owns tiles of
// queries, and each recomputes P and dS. So there are no atomics, and every sum has a fixed order.
#include <bit>
#include <type_traits>

#include "ops/device_ops.h"
#include "ops/gpu/attention_kernels.h"
#include "ops/gpu/attention_tiles.h"

namespace trireme::ops::gpu {
namespace {

// delta (batch, heads, length) = sum over d of out * dout. So many lanes of a warp as a head has
// chunks, rounded up to a power of 2, take a row of a head.
__global__ void TRIREME_ATTENTION_BOUNDS delta_kernel(AttentionProblem p, Heads out, Heads dout,
                                                      float* delta, std::int64_t rows, int lanes,
                                                      bool vector) {
  const std::int64_t thread =
      static_cast<std::int64_t>(blockIdx.x) * kAttentionThreads + threadIdx.x;
  const std::int64_t row = thread / lanes;
  const std::int64_t t = row % p.length, h = row / p.length % p.heads, b = row / p.length / p.heads;
  const auto d = static_cast<std::int64_t>(threadIdx.x) % lanes * kChunk;
  float sum = 0.0f;
  if (row < rows && d < p.head_size) {
    float x[kChunk], y[kChunk];
    out.data.load(out.first(b, h) + t * out.row + d, p.head_size - d, vector, x);
    dout.data.load(dout.first(b, h) + t * dout.row + d, p.head_size - d, vector, y);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) sum += x[i] * y[i];
  }
  for (int offset = lanes / 2; offset > 0; offset /= 2) {
    sum += __shfl_xor_sync(kAllLanes, sum, offset);
  }
  if (row < rows && d == 0) delta[row] = sum;
}

// A pair of tiles in shared memory.
template <class Tile>
struct Tiles {
  float *queries, *dout, *keys, *values, *weights, *dscores;

  static constexpr std::size_t kBytes = sizeof(float) * (4 * Tile::kPanel + 2 * Tile::kScores);
  __device__ explicit Tiles(float* shared)
      : queries(shared),
        dout(queries + Tile::kPanel),
        keys(dout + Tile::kPanel),
        values(keys + Tile::kPanel),
        weights(values + Tile::kPanel),
        dscores(weights + Tile::kScores) {}
};

// Writes the capped scores to shared memory, one after the other: unrolled, they spill registers.
template <class Tile>
__device__ inline void cap_scores(const AttentionProblem& p,
                                  const float (&scores)[Tile::kRows][Tile::kRows], float* capped) {
  float* const mine = capped + tile_y() * Tile::kScoreStride + tile_x();
#pragma unroll
  for (int i = 0; i < Tile::kRows; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::kRows; ++j) {
      mine[16 * (i * Tile::kScoreStride + j)] = scores[i][j];
    }
  }
#pragma unroll 1
  for (int k = 0; k < Tile::kRows * Tile::kRows; ++k) {
    float& score = mine[16 * (k / Tile::kRows * Tile::kScoreStride + k % Tile::kRows)];
    score = score_of<true>(p, score);
  }
}

// Computes P and dS of the tiles in shared memory, of queries from `query` on and keys from `key`
// on, into weights and dscores. Ends with a barrier.
template <class Tile, bool kCapped>
__device__ inline void weight_tile(const AttentionProblem& p, const BackwardHeads& heads,
                                   std::int64_t b, std::int64_t h, std::int64_t query,
                                   std::int64_t key, const Tiles<Tile>& tiles) {
  float scores[Tile::kRows][Tile::kRows], dweights[Tile::kRows][Tile::kRows];
  dot_rows<Tile>(tiles.queries, tiles.keys, scores);
  if constexpr (kCapped) cap_scores<Tile>(p, scores, tiles.weights);
  dot_rows<Tile>(tiles.dout, tiles.values, dweights);
#pragma unroll
  for (int i = 0; i < Tile::kRows; ++i) {
    const int row = tile_y() + 16 * i;
    const bool inside = query + row < p.length;
    const std::int64_t saved = (b * p.heads + h) * p.length + query + row;
    const float log_sum = inside ? heads.log_sum[saved] : 0.0f;
    const float delta = inside ? heads.delta[saved] : 0.0f;
#pragma unroll
    for (int j = 0; j < Tile::kRows; ++j) {
      const int column = tile_x() + 16 * j;
      const bool visible = sees(p, b, query + row, key + column);
      const float score = kCapped ? tiles.weights[row * Tile::kScoreStride + column]
                                  : score_of<false>(p, scores[i][j]);
      const float weight = visible ? exp_of_difference(score - log_sum) : 0.0f;
      const float dscore =
          visible ? weight * (dweights[i][j] - delta) * slope_of<kCapped>(p, score) : 0.0f;
      tiles.weights[row * Tile::kScoreStride + column] = weight;
      tiles.dscores[row * Tile::kScoreStride + column] = dscore;
    }
  }
  __syncthreads();
}

// dK and dV of a tile of keys, over all query heads that share them.
template <class Tile, bool kCapped>
__global__ void TRIREME_ATTENTION_BOUNDS attention_backward_keys_kernel(AttentionProblem p,
                                                                        BackwardHeads heads) {
  TRIREME_DYNAMIC_SHARED(float, shared);
  const Tiles<Tile> tiles(shared);
  const std::int64_t b = blockIdx.z, kv_head = blockIdx.y;
  const std::int64_t key = static_cast<std::int64_t>(blockIdx.x) * Tile::kTile;
  const std::int64_t key_end = key + Tile::kTile < p.length ? key + Tile::kTile : p.length;
  load_tile<Tile>(heads.k, heads.k.first(b, kv_head), key, key_end, p.head_size, tiles.keys);
  load_tile<Tile>(heads.v, heads.v.first(b, kv_head), key, key_end, p.head_size, tiles.values);
  float dkeys[Tile::kRows][Tile::kColumns] = {}, dvalues[Tile::kRows][Tile::kColumns] = {};
  for (std::int64_t h = kv_head * p.group; h < (kv_head + 1) * p.group; ++h) {
    const std::int64_t first = p.causal ? key : 0;
    for (std::int64_t query = first; query < p.length; query += Tile::kTile) {
      const std::int64_t end = query + Tile::kTile < p.length ? query + Tile::kTile : p.length;
      // These conditions are the same in all threads.
      if (lowest_key(p, b, query, end) >= key_end) continue;
      if (highest_key_end(p, b, query, end) <= key) continue;
      __syncthreads();
      load_tile<Tile>(heads.q, heads.q.first(b, h), query, end, p.head_size, tiles.queries);
      load_tile<Tile>(heads.dout, heads.dout.first(b, h), query, end, p.head_size, tiles.dout);
      __syncthreads();
      weight_tile<Tile, kCapped>(p, heads, b, h, query, key, tiles);
      add_weighted<Tile, true>(tiles.weights, tiles.dout, dvalues);
      add_weighted<Tile, true>(tiles.dscores, tiles.queries, dkeys);
    }
  }
  store_tile<Tile>(heads.dk, heads.dk.first(b, kv_head), key, key_end, p.head_size, dkeys);
  store_tile<Tile>(heads.dv, heads.dv.first(b, kv_head), key, key_end, p.head_size, dvalues);
}

// dQ of a tile of queries.
template <class Tile, bool kCapped>
__global__ void TRIREME_ATTENTION_BOUNDS attention_backward_queries_kernel(AttentionProblem p,
                                                                           BackwardHeads heads) {
  TRIREME_DYNAMIC_SHARED(float, shared);
  const Tiles<Tile> tiles(shared);
  const std::int64_t b = blockIdx.z, h = blockIdx.y;
  const std::int64_t query = static_cast<std::int64_t>(gridDim.x - 1 - blockIdx.x) * Tile::kTile;
  const std::int64_t end = query + Tile::kTile < p.length ? query + Tile::kTile : p.length;
  load_tile<Tile>(heads.q, heads.q.first(b, h), query, end, p.head_size, tiles.queries);
  load_tile<Tile>(heads.dout, heads.dout.first(b, h), query, end, p.head_size, tiles.dout);
  float dqueries[Tile::kRows][Tile::kColumns] = {};
  const std::int64_t keys_end = highest_key_end(p, b, query, end);
  std::int64_t key = lowest_key(p, b, query, end) / Tile::kTile * Tile::kTile;
  for (; key < keys_end; key += Tile::kTile) {
    const std::int64_t kv_head = h / p.group;
    __syncthreads();
    load_tile<Tile>(heads.k, heads.k.first(b, kv_head), key, keys_end, p.head_size, tiles.keys);
    load_tile<Tile>(heads.v, heads.v.first(b, kv_head), key, keys_end, p.head_size, tiles.values);
    __syncthreads();
    weight_tile<Tile, kCapped>(p, heads, b, h, query, key, tiles);
    add_weighted<Tile, false>(tiles.dscores, tiles.keys, dqueries);
  }
  store_tile<Tile>(heads.dq, heads.dq.first(b, h), query, end, p.head_size, dqueries);
}

}  // namespace

void attention_backward(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
                        const KeyRanges& ranges, const Tensor& out, const Tensor& log_sum,
                        const Tensor& dout, const Tensor& dqkv) {
  const AttentionProblem problem = problem_of(shape, 0, ranges);
  const std::int64_t rows = shape.batch * shape.heads * shape.length;
  const Tensor delta = deltas_of_attention(ctx, shape);
  const std::int64_t keys = shape.heads, values = shape.heads + shape.kv_heads;
  const BackwardHeads heads = {heads_of_qkv(qkv, shape, 0),       heads_of_qkv(qkv, shape, keys),
                               heads_of_qkv(qkv, shape, values),  heads_of_out(dout, shape),
                               heads_of_qkv(dqkv, shape, 0),      heads_of_qkv(dqkv, shape, keys),
                               heads_of_qkv(dqkv, shape, values), device_data<float>(log_sum),
                               device_data<float>(delta)};
  const auto lanes = static_cast<int>(
      std::bit_ceil(static_cast<std::uint64_t>(blocks_for(shape.head_size, kChunk))));
  launch(delta_kernel, extent(blocks_for(rows * lanes, kAttentionThreads)), kAttentionThreads, 0,
         ctx.stream, problem, heads_of_out(out, shape), heads.dout, device_data<float>(delta), rows,
         lanes, vectors_fit({&out, &dout}, shape.head_size));
  if (on_tensor_cores(shape, qkv.dtype()) && of_one_type({&qkv, &out, &dout, &dqkv})) {
    return differentiate_on_tensor_cores(ctx, shape, problem, heads);
  }
  with_tile(shape.head_size, [&](auto type) {
    using Tile = decltype(type);
    const unsigned tiles = extent(blocks_for(shape.length, Tile::kTile));
    const unsigned batch = extent(shape.batch);
    const auto run = [&](auto capped) {
      constexpr bool kCapped = decltype(capped)::value;
      launch(attention_backward_keys_kernel<Tile, kCapped>,
             dim3(tiles, extent(shape.kv_heads), batch), kAttentionThreads, Tiles<Tile>::kBytes,
             ctx.stream, problem, heads);
      launch(attention_backward_queries_kernel<Tile, kCapped>,
             dim3(tiles, extent(shape.heads), batch), kAttentionThreads, Tiles<Tile>::kBytes,
             ctx.stream, problem, heads);
    };
    if (shape.cap > 0.0f) {
      run(std::true_type());
    } else {
      run(std::false_type());
    }
  });
}

}  // namespace trireme::ops::gpu
