// Forward attention (Dao et al. 2022): a block takes a tile of queries of one head and walks over
// its tiles of keys with a running maximum and sum. Here by fp32 arithmetic; where tensor cores can
// do it, they do (attention_tensor_cores_gpu.cu).
#include "ops/device_ops.h"
#include "ops/gpu/attention_kernels.h"
#include "ops/gpu/attention_tiles.h"

namespace trireme::ops::gpu {
namespace {

// Reductions over the 16 threads of a row of scores.
__device__ inline float row_max(float value) {
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, value, offset);
    value = other > value ? other : value;
  }
  return value;
}
__device__ inline float row_sum(float value) {
#pragma unroll
  for (int offset = 8; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

// The state that a thread keeps for its rows.
template <class Tile>
struct Running {
  float maximum[Tile::kRows], sum[Tile::kRows];
  float out[Tile::kRows][Tile::kColumns];
};

// Replaces scores by exp(score - maximum), in shared memory, and rescales what was summed before.
template <class Tile>
__device__ inline void softmax_tile(float (&scores)[Tile::kRows][Tile::kRows], float* weights,
                                    Running<Tile>& running) {
#pragma unroll
  for (int i = 0; i < Tile::kRows; ++i) {
    float top = running.maximum[i];
#pragma unroll
    for (int j = 0; j < Tile::kRows; ++j) top = scores[i][j] > top ? scores[i][j] : top;
    top = row_max(top);
    // If a query has seen no key yet, any finite base gives weights of 0, not NaN.
    const float base = top == -infinity() ? 0.0f : top;
    const float rescale = exp_of_difference(running.maximum[i] - base);
    float total = 0.0f;
#pragma unroll
    for (int j = 0; j < Tile::kRows; ++j) {
      const float weight = exp_of_difference(scores[i][j] - base);
      weights[(tile_y() + 16 * i) * Tile::kScoreStride + tile_x() + 16 * j] = weight;
      total += weight;
    }
    running.sum[i] = running.sum[i] * rescale + row_sum(total);
    running.maximum[i] = top;
#pragma unroll
    for (int j = 0; j < Tile::kColumns; ++j) running.out[i][j] *= rescale;
  }
}

template <class Tile>
__device__ inline void finish_rows(const AttentionProblem& p, std::int64_t b, std::int64_t h,
                                   std::int64_t begin, std::int64_t end, const Heads& out,
                                   float* log_sum, Running<Tile>& running) {
#pragma unroll
  for (int i = 0; i < Tile::kRows; ++i) {
#pragma unroll
    for (int j = 0; j < Tile::kColumns; ++j) running.out[i][j] /= running.sum[i];
    const std::int64_t row = begin + tile_y() + 16 * i;
    if (log_sum == nullptr || tile_x() != 0 || row >= end) continue;
    log_sum[(b * p.heads + h) * p.length + row] = running.maximum[i] + logf(running.sum[i]);
  }
  store_tile<Tile>(out, out.first(b, h), begin, end, p.head_size, running.out);
}

template <class Tile>
__global__ void TRIREME_ATTENTION_BOUNDS attention_kernel(AttentionProblem p, Heads q, Heads k,
                                                          Heads v, Heads out, float* log_sum) {
  TRIREME_DYNAMIC_SHARED(float, shared);
  float* queries = shared;
  float* keys = queries + Tile::kPanel;
  float* values = keys + Tile::kPanel;
  float* weights = values + Tile::kPanel;
  const std::int64_t b = blockIdx.z, h = blockIdx.y;
  // The tiles with most keys come first.
  const std::int64_t begin = static_cast<std::int64_t>(gridDim.x - 1 - blockIdx.x) * Tile::kTile;
  const std::int64_t end = begin + Tile::kTile < p.length ? begin + Tile::kTile : p.length;
  const std::int64_t keys_end = highest_key_end(p, b, begin, end);
  load_tile<Tile>(q, q.first(b, h), begin, end, p.head_size, queries);
  Running<Tile> running = {};
#pragma unroll
  for (float& maximum : running.maximum) maximum = -infinity();
  std::int64_t key = lowest_key(p, b, begin, end) / Tile::kTile * Tile::kTile;
  for (; key < keys_end; key += Tile::kTile) {
    __syncthreads();
    load_tile<Tile>(k, k.first(b, h / p.group), key, keys_end, p.head_size, keys);
    load_tile<Tile>(v, v.first(b, h / p.group), key, keys_end, p.head_size, values);
    __syncthreads();
    float scores[Tile::kRows][Tile::kRows];
    dot_rows<Tile>(queries, keys, scores);
#pragma unroll
    for (int i = 0; i < Tile::kRows; ++i) {
#pragma unroll
      for (int j = 0; j < Tile::kRows; ++j) {
        const bool visible = sees(p, b, begin + tile_y() + 16 * i, key + tile_x() + 16 * j);
        scores[i][j] = visible ? (p.cap > 0.0f ? score_of<true>(p, scores[i][j])
                                               : score_of<false>(p, scores[i][j]))
                               : -infinity();
      }
    }
    softmax_tile<Tile>(scores, weights, running);
    __syncwarp();  // a row's weights are written and read by one half of a warp
    add_weighted<Tile, false>(weights, values, running.out);
  }
  finish_rows<Tile>(p, b, h, begin, end, out, log_sum, running);
}

void attend(Context& ctx, const AttentionShape& s, const AttentionProblem& problem, const Heads& q,
            const Heads& k, const Heads& v, const Heads& out, float* log_sum) {
  if (on_tensor_cores(s, q.data.type) && out.data.type == q.data.type) {
    return attend_on_tensor_cores(ctx, s, problem, q, k, v, out, log_sum);
  }
  with_tile(s.head_size, [&](auto tile) {
    using Tile = decltype(tile);
    const dim3 grid(extent(blocks_for(s.length, Tile::kTile)), extent(s.heads), extent(s.batch));
    const std::size_t shared = sizeof(float) * (3 * Tile::kPanel + Tile::kScores);
    launch(attention_kernel<Tile>, grid, kAttentionThreads, shared, ctx.stream, problem, q, k, v,
           out, log_sum);
  });
}

// Appends the rows of new keys and values to the cache.
template <class T>
__global__ void __launch_bounds__(256)
    append_kernel(View<T> qkv, std::int64_t qkv_row, std::int64_t first_column, View<T> cache,
                  std::int64_t length, std::int64_t capacity, std::int64_t past, std::int64_t rows,
                  std::int64_t width, bool vector) {
  for_chunks(rows, width, [&](std::int64_t row, std::int64_t column, std::int64_t left) {
    const std::int64_t slot = row / length * capacity + past + row % length;
    float values[kChunk];
    qkv.load(row * qkv_row + first_column + column, left, vector, values);
    cache.store(slot * width + column, left, vector, values);
  });
}

void append(Context& ctx, const AttentionShape& s, const Tensor& qkv, std::int64_t first_head,
            std::int64_t past, const Tensor& cache) {
  const std::int64_t rows = s.batch * s.length, width = s.kv_heads * s.head_size;
  with_type({&qkv}, [&](auto type) {
    using T = decltype(type);
    launch(append_kernel<T>, chunk_grid(rows, width), chunk_block(width), 0, ctx.stream,
           View<T>(qkv), s.row(), first_head * s.head_size, View<T>(cache), s.length,
           cache.shape()[1], past, rows, width, vectors_fit({&qkv, &cache}, s.head_size));
  });
}

}  // namespace

void attention(Context& ctx, const AttentionShape& shape, const Tensor& qkv, const KeyRanges& keys,
               const Tensor& out, const Tensor& log_sum) {
  attend(ctx, shape, problem_of(shape, 0, keys), heads_of_qkv(qkv, shape, 0),
         heads_of_qkv(qkv, shape, shape.heads),
         heads_of_qkv(qkv, shape, shape.heads + shape.kv_heads), heads_of_out(out, shape),
         device_data<float>(log_sum));
}

void attention_cached(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
                      std::int64_t past, const Tensor& first_key, const Tensor& keys,
                      const Tensor& values, const Tensor& out) {
  append(ctx, shape, qkv, shape.heads, past, keys);
  append(ctx, shape, qkv, shape.heads + shape.kv_heads, past, values);
  const std::int64_t width = shape.kv_heads * shape.head_size;
  const auto cached = [&](const Tensor& cache) -> Heads {
    return {View<Any>(cache), 0, cache.shape()[1] * width, width, shape.head_size};
  };
  attend(ctx, shape, problem_of(shape, past, first_key), heads_of_qkv(qkv, shape, 0), cached(keys),
         cached(values), heads_of_out(out, shape), nullptr);
}

}  // namespace trireme::ops::gpu
