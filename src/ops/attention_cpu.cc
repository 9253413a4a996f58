// Works on tiles of 64 keys x 64 queries. Queries are in vector lanes, so maxima and sums over keys
// are taken lane by lane. Tiles and their order depend on the shape alone.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "ops/cpu/attention_tiles.h"
#include "ops/cpu/parallel.h"
#include "ops/device_ops.h"

namespace trireme::ops::cpu {
namespace {

// The data of one sample and head in the forward.
struct ForwardHead {
  HeadRows queries, keys, values, out;
  SampleQueries sample;
  float* log_sum;  // of query 0, or null
  float factor, cap;
};

// Pieces of the forward's scratch.
enum Forward : std::size_t {
  kQueries,
  kQueriesT,
  kKeys,
  kValues,
  kScores,
  kOut,
  kMax,
  kSum,
  kRescale
};

ThreadScratch forward_scratch(Context& ctx, std::int64_t head_size) {
  const std::int64_t panel = kQueryTile * padded(head_size);
  return {ctx,
          {panel, panel, panel, panel, kKeyTile * kQueryTile, panel, kQueryTile, kQueryTile,
           kQueryTile}};
}

void attend(const ForwardHead& head, std::int64_t first_query, const ThreadScratch& scratch) {
  const AttentionKernels& k = kernels().attention;
  const std::int64_t size = head.queries.head_size;
  const std::int64_t width = padded(size);
  const QueryTile tile = make_query_tile(first_query, head.sample);
  float* out = scratch.piece(kOut);
  float* scores = scratch.piece(kScores);
  float* maximum = scratch.piece(kMax);
  float* sum = scratch.piece(kSum);
  float* rescale = scratch.piece(kRescale);
  const Panel queries = read_rows(head.queries, tile.first, tile.count, scratch.piece(kQueries));
  k.transpose(queries.data, queries.stride, tile.count, size, head.factor, scratch.piece(kQueriesT),
              tile.lanes);
  std::fill_n(maximum, tile.lanes, -std::numeric_limits<float>::infinity());
  std::fill_n(sum, tile.lanes, 0.0f);
  for (std::int64_t key = tile.keys_begin; key < tile.keys_end; key += kKeyTile) {
    const std::int64_t count = std::min(kKeyTile, tile.keys_end - key);
    const Panel keys = read_rows(head.keys, key, count, scratch.piece(kKeys));
    const Panel values = read_rows(head.values, key, count, scratch.piece(kValues));
    score_tile(tile, head.cap, size, scratch.piece(kQueriesT), keys, key, count, scores);
    k.softmax(scores, count, tile.lanes, maximum, sum, rescale);
    const bool first = key == tile.keys_begin;
    if (!first) k.scale_rows(out, tile.count, width, rescale);
    k.product({.m = tile.count,
               .n = width,
               .k = count,
               .a = scores,
               .a_row = 1,
               .a_column = tile.lanes,
               .b = values.data,
               .b_row = values.stride,
               .c = out,
               .c_row = width,
               .accumulate = !first});
  }
  for (std::int64_t j = 0; j < tile.count; ++j) {
    kernels().elementwise.scale(out + j * width, 1.0f / sum[j], width);
    write_row(head.out, tile.first + j, out + j * width);
    if (head.log_sum != nullptr) head.log_sum[tile.first + j] = maximum[j] + std::log(sum[j]);
  }
}

// All heads of all samples; head_of(b, h) gives the views.
template <class HeadOf>
void attend_all(Context& ctx, const AttentionShape& shape, const HeadOf& head_of) {
  const ThreadScratch scratch = forward_scratch(ctx, shape.head_size);
  const std::int64_t tiles = (shape.length + kQueryTile - 1) / kQueryTile;
  parallel_for_uneven(ctx, shape.batch * shape.heads * tiles, [&](std::int64_t task) {
    const std::int64_t tile = tiles - 1 - task % tiles;  // the tasks with most keys first
    const std::int64_t head = task / tiles % shape.heads;
    const std::int64_t sample = task / tiles / shape.heads;
    attend(head_of(sample, head), tile * kQueryTile, scratch);
  });
}

// The heads of a sample in a tensor with the layout of qkv.
HeadRows query_rows(const Tensor& qkv, const AttentionShape& s, std::int64_t sample,
                    std::int64_t head) {
  return {qkv, sample * s.length * s.row() + head * s.head_size, s.row(), s.head_size};
}
HeadRows key_rows(const Tensor& qkv, const AttentionShape& s, std::int64_t sample,
                  std::int64_t kv_head) {
  return query_rows(qkv, s, sample, s.heads + kv_head);
}
HeadRows value_rows(const Tensor& qkv, const AttentionShape& s, std::int64_t sample,
                    std::int64_t kv_head) {
  return query_rows(qkv, s, sample, s.heads + s.kv_heads + kv_head);
}
HeadRows out_rows(const Tensor& out, const AttentionShape& s, std::int64_t sample,
                  std::int64_t head) {
  const std::int64_t width = s.heads * s.head_size;
  return {out, sample * s.length * width + head * s.head_size, width, s.head_size};
}

SampleQueries queries_of(const AttentionShape& s, std::int64_t past, const KeyRanges& keys,
                         std::int64_t sample) {
  const auto of_sample = [&](const Tensor& rows) {
    return rows.defined() ? rows.data<std::int32_t>() + sample * s.length : nullptr;
  };
  return {s.length, past, s.causal, s.window, of_sample(keys.first), of_sample(keys.end)};
}

// Pieces of the backward's scratch; the last four hold a whole sample's keys.
enum Backward : std::size_t {
  kBQueries,
  kBQueriesT,
  kBDout,
  kBDoutT,
  kBOut,
  kBWeights,
  kBDweights,
  kBDqueries,
  kBLogSum,
  kBDelta,
  kBKeys,
  kBValues,
  kBDkeys,
  kBDvalues
};

ThreadScratch backward_scratch(Context& ctx, const AttentionShape& shape) {
  const std::int64_t panel = kQueryTile * padded(shape.head_size);
  const std::int64_t scores = kKeyTile * kQueryTile;
  const std::int64_t all = shape.length * padded(shape.head_size);
  return {ctx,
          {panel, panel, panel, panel, panel, scores, scores, panel, kQueryTile, kQueryTile, all,
           all, all, all}};
}

// The backward of one sample and one key and value head.
struct BackwardTask {
  const AttentionShape& shape;
  const ThreadScratch& scratch;
  Panel keys, values;
  float *dkeys, *dvalues;  // (length, padded head size)

  // Adds the part of one tile of queries of one head.
  void run_tile(const QueryTile& tile, const HeadRows& query_head, const HeadRows& out_head,
                const HeadRows& dout_head, const HeadRows& dquery_head, const float* log_sum);
  void run_keys(const QueryTile& tile, const Panel& queries, const Panel& dout, std::int64_t key,
                std::int64_t count);
};

void BackwardTask::run_tile(const QueryTile& tile, const HeadRows& query_head,
                            const HeadRows& out_head, const HeadRows& dout_head,
                            const HeadRows& dquery_head, const float* log_sum) {
  const AttentionKernels& k = kernels().attention;
  const std::int64_t size = shape.head_size;
  const std::int64_t width = padded(size);
  const Panel queries = read_rows(query_head, tile.first, tile.count, scratch.piece(kBQueries));
  const Panel dout = read_rows(dout_head, tile.first, tile.count, scratch.piece(kBDout));
  const Panel out = read_rows(out_head, tile.first, tile.count, scratch.piece(kBOut));
  k.transpose(queries.data, queries.stride, tile.count, size, shape.factor(),
              scratch.piece(kBQueriesT), tile.lanes);
  k.transpose(dout.data, dout.stride, tile.count, size, 1.0f, scratch.piece(kBDoutT), tile.lanes);
  float* lane_log_sum = scratch.piece(kBLogSum);
  float* delta = scratch.piece(kBDelta);
  // Padding: weights of exp(0 - infinity) = 0.
  std::fill_n(lane_log_sum, tile.lanes, std::numeric_limits<float>::infinity());
  std::fill_n(delta, tile.lanes, 0.0f);
  for (std::int64_t j = 0; j < tile.count; ++j) {
    lane_log_sum[j] = log_sum[tile.first + j];
    delta[j] = k.dot(out.data + j * out.stride, dout.data + j * dout.stride, size);
  }
  float* dqueries = scratch.piece(kBDqueries);
  std::fill_n(dqueries, tile.count * width, 0.0f);
  for (std::int64_t key = tile.keys_begin; key < tile.keys_end; key += kKeyTile) {
    run_keys(tile, queries, dout, key, std::min(kKeyTile, tile.keys_end - key));
  }
  for (std::int64_t j = 0; j < tile.count; ++j) {
    write_row(dquery_head, tile.first + j, dqueries + j * width);
  }
}

// With weights P and their gradients dP = V dO^T: dS = P (dP - delta) factor, times the cap's
// derivative, then dV += P dO, dK += dS Q, dQ += dS^T K. Scores and their gradients are (keys,
// queries).
void BackwardTask::run_keys(const QueryTile& tile, const Panel& queries, const Panel& dout,
                            std::int64_t key, std::int64_t count) {
  const AttentionKernels& k = kernels().attention;
  const std::int64_t width = padded(shape.head_size);
  float* weights = scratch.piece(kBWeights);
  float* dscores = scratch.piece(kBDweights);
  const Panel tile_keys = {keys.data + key * keys.stride, keys.stride};
  score_tile(tile, shape.cap, shape.head_size, scratch.piece(kBQueriesT), tile_keys, key, count,
             weights);
  k.product({count, tile.lanes, shape.head_size, values.data + key * values.stride, values.stride,
             1, scratch.piece(kBDoutT), tile.lanes, dscores, tile.lanes, false});
  if (shape.cap > 0.0f) {
    k.softmax_backward_capped(weights, dscores, count, tile.lanes, scratch.piece(kBLogSum),
                              scratch.piece(kBDelta), shape.factor(), shape.cap);
  } else {
    k.softmax_backward(weights, dscores, count, tile.lanes, scratch.piece(kBLogSum),
                       scratch.piece(kBDelta), shape.factor());
  }
  k.product({count, width, tile.count, weights, tile.lanes, 1, dout.data, dout.stride,
             dvalues + key * width, width, true});
  k.product({count, width, tile.count, dscores, tile.lanes, 1, queries.data, queries.stride,
             dkeys + key * width, width, true});
  k.product({tile.count, width, count, dscores, 1, tile.lanes, tile_keys.data, tile_keys.stride,
             scratch.piece(kBDqueries), width, true});
}

}  // namespace

void attention(Context& ctx, const AttentionShape& shape, const Tensor& qkv, const KeyRanges& keys,
               const Tensor& out, const Tensor& log_sum) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  attend_all(ctx, shape, [&](std::int64_t sample, std::int64_t head) -> ForwardHead {
    return {.queries = query_rows(qkv, shape, sample, head),
            .keys = key_rows(qkv, shape, sample, head / group),
            .values = value_rows(qkv, shape, sample, head / group),
            .out = out_rows(out, shape, sample, head),
            .sample = queries_of(shape, 0, keys, sample),
            .log_sum = log_sum.data<float>() + (sample * shape.heads + head) * shape.length,
            .factor = shape.factor(),
            .cap = shape.cap};
  });
}

// A task owns a key and value head of a sample. It alone adds to their gradients, in a fixed order.
void attention_backward(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
                        const KeyRanges& keys, const Tensor& out, const Tensor& log_sum,
                        const Tensor& dout, const Tensor& dqkv) {
  const ThreadScratch scratch = backward_scratch(ctx, shape);
  const std::int64_t group = shape.heads / shape.kv_heads;
  const std::int64_t width = padded(shape.head_size);
  parallel_for_uneven(ctx, shape.batch * shape.kv_heads, [&](std::int64_t number) {
    const std::int64_t sample = number / shape.kv_heads;
    const std::int64_t kv_head = number % shape.kv_heads;
    BackwardTask task = {
        shape,
        scratch,
        read_rows(key_rows(qkv, shape, sample, kv_head), 0, shape.length, scratch.piece(kBKeys)),
        read_rows(value_rows(qkv, shape, sample, kv_head), 0, shape.length,
                  scratch.piece(kBValues)),
        scratch.piece(kBDkeys),
        scratch.piece(kBDvalues)};
    std::fill_n(task.dkeys, shape.length * width, 0.0f);
    std::fill_n(task.dvalues, shape.length * width, 0.0f);
    const SampleQueries queries = queries_of(shape, 0, keys, sample);
    for (std::int64_t head = kv_head * group; head < (kv_head + 1) * group; ++head) {
      for (std::int64_t first = 0; first < shape.length; first += kQueryTile) {
        task.run_tile(make_query_tile(first, queries), query_rows(qkv, shape, sample, head),
                      out_rows(out, shape, sample, head), out_rows(dout, shape, sample, head),
                      query_rows(dqkv, shape, sample, head),
                      log_sum.data<float>() + (sample * shape.heads + head) * shape.length);
      }
    }
    for (std::int64_t t = 0; t < shape.length; ++t) {
      write_row(key_rows(dqkv, shape, sample, kv_head), t, task.dkeys + t * width);
      write_row(value_rows(dqkv, shape, sample, kv_head), t, task.dvalues + t * width);
    }
  });
}

void attention_cached(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
                      std::int64_t past, const Tensor& first_key, const Tensor& keys,
                      const Tensor& values, const Tensor& out) {
  const std::int64_t group = shape.heads / shape.kv_heads;
  const std::int64_t capacity = keys.shape()[1];
  const std::int64_t width = shape.kv_heads * shape.head_size;
  const std::size_t element = size_of(qkv.dtype());
  const auto bytes = static_cast<std::size_t>(width) * element;
  on_this_thread(ctx, [&] {
    for (std::int64_t row = 0; row < shape.batch * shape.length; ++row) {
      const auto* from =
          static_cast<const std::byte*>(qkv.raw()) +
          static_cast<std::size_t>(row * shape.row() + shape.heads * shape.head_size) * element;
      const std::int64_t slot = row / shape.length * capacity + past + row % shape.length;
      const std::size_t at = static_cast<std::size_t>(slot) * bytes;
      std::memcpy(static_cast<std::byte*>(keys.raw()) + at, from, bytes);
      std::memcpy(static_cast<std::byte*>(values.raw()) + at, from + bytes, bytes);
    }
  });
  attend_all(ctx, shape, [&](std::int64_t sample, std::int64_t head) -> ForwardHead {
    const std::int64_t begin = sample * capacity * width + head / group * shape.head_size;
    return {.queries = query_rows(qkv, shape, sample, head),
            .keys = {keys, begin, width, shape.head_size},
            .values = {values, begin, width, shape.head_size},
            .out = out_rows(out, shape, sample, head),
            .sample = queries_of(shape, past, first_key, sample),
            .log_sum = nullptr,
            .factor = shape.factor(),
            .cap = shape.cap};
  });
}

}  // namespace trireme::ops::cpu
