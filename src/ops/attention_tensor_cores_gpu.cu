// Attention of bf16 and fp16 on tensor cores, with all masks: documents, padding, windows, capped
// scores. A warp owns 16 rows (of queries, or of keys in one kernel of the backward), a block 64,
// and it walks over the rows of the other kind in shared memory; the next ones arrive meanwhile. As
// in the fp32 kernels no two blocks add to the same sum, so there are no atomics and every sum has
// a fixed order, at the price of seven products in the backward instead of five.
#include <type_traits>

#include "ops/gpu/attention_kernels.h"
#include "ops/gpu/reduce.h"
#include "ops/gpu/tensor_cores.h"

namespace trireme::ops::gpu {
namespace {

constexpr int kWarps = 4, kThreads = 32 * kWarps;
constexpr int kOwn = 16 * kWarps;  // rows that a block owns
// Rows of the other kind that the backward takes at a time: as many as registers allow.
template <int kDepth>
constexpr int kTile = kDepth > 64 ? 32 : 64;
constexpr float kLog2OfE = 1.4426950408889634f, kLogOf2 = 0.6931471805599453f;

// The keys that some of a span of queries see, and those that all of them see.
struct alignas(16) KeySpan {
  int begin, full_begin, full_end, end;

  // Whether every query of the span sees all of these keys.
  __device__ bool covers(int first, int last) const {
    return full_begin <= first && last <= full_end;
  }
};

// One span for each kRowsOfSpan queries of a sample. A warp takes a span.
__global__ void __launch_bounds__(kThreads)
    attention_spans_kernel(AttentionProblem p, KeySpan* spans, int count, int all) {
  const int span = static_cast<int>(blockIdx.x) * kWarps + static_cast<int>(threadIdx.x / 32);
  if (span >= all) return;
  const std::int64_t b = span / count;
  const std::int64_t begin = static_cast<std::int64_t>(span % count) * kRowsOfSpan;
  // Lanes behind the last query repeat it.
  const std::int64_t mine = begin + lane_of_warp(), last = p.length - 1;
  const std::int64_t t = mine < last ? mine : last;
  const auto first = static_cast<unsigned>(first_key_of(p, b, t));
  const auto end = static_cast<unsigned>(key_end_of(p, b, t));
  const KeySpan found = {static_cast<int>(__reduce_min_sync(kAllLanes, first)),
                         static_cast<int>(__reduce_max_sync(kAllLanes, first)),
                         static_cast<int>(__reduce_min_sync(kAllLanes, end)),
                         static_cast<int>(__reduce_max_sync(kAllLanes, end))};
  if (lane_of_warp() == 0) spans[span] = found;
}
static_assert(kRowsOfSpan == 32);

__device__ inline int smaller(int a, int b) {
  return a < b ? a : b;
}
__device__ inline int larger(int a, int b) {
  return a > b ? a : b;
}

// The span of queries [begin, end), at most kRows. `begin` is a multiple of kRowsOfSpan.
template <int kRows>
__device__ inline KeySpan span_of(const AttentionProblem& p, const KeySpan* spans, std::int64_t b,
                                  int begin, int end) {
  if (spans == nullptr) {  // both bounds grow with the query
    return {static_cast<int>(first_key_of(p, b, begin)),
            static_cast<int>(first_key_of(p, b, end - 1)),
            static_cast<int>(key_end_of(p, b, begin)), static_cast<int>(key_end_of(p, b, end - 1))};
  }
  const int count = (static_cast<int>(p.length) + kRowsOfSpan - 1) / kRowsOfSpan;
  const KeySpan* const first = spans + b * count + begin / kRowsOfSpan;
  KeySpan all = *first;
#pragma unroll
  for (int i = 1; i < kRows / kRowsOfSpan; ++i) {
    if (begin + i * kRowsOfSpan >= end) continue;
    const KeySpan more = first[i];
    all = {smaller(all.begin, more.begin), larger(all.full_begin, more.full_begin),
           smaller(all.full_end, more.full_end), larger(all.end, more.end)};
  }
  return all;
}

template <class T>
__device__ inline T* head_of(const Heads& heads, std::int64_t b, std::int64_t h) {
  return static_cast<T*>(heads.data.data) + heads.first(b, h);
}

// Starts to copy rows [begin, end) of a head, at most kRows, to shared memory. What is beyond them
// becomes 0.
template <class T, int kDepth, int kRows>
__device__ inline void copy_rows(const AttentionProblem& p, const Heads& heads, std::int64_t b,
                                 std::int64_t h, int begin, int end, T* to) {
  constexpr int kChunks = kDepth / kChunk;
  const T* const head = head_of<T>(heads, b, h);
#pragma unroll
  for (int i = 0; i < kRows * kChunks / kThreads; ++i) {
    const int at = i * kThreads + static_cast<int>(threadIdx.x);
    const int row = at / kChunks, d = at % kChunks * kChunk;
    T* const place = to + row * kRowStride<kDepth> + d;
    if (begin + row < end && d < p.head_size) {
      start_copy(place, head + static_cast<std::int64_t>(begin + row) * heads.row + d);
    } else {
      *reinterpret_cast<uint4*>(place) = make_uint4(0, 0, 0, 0);
    }
  }
}

// Stores a warp's 16 rows of sums, each times its factor, by way of its rows in shared memory,
// which no other warp reads any more.
template <class T, int kDepth>
__device__ inline void store_rows(const AttentionProblem& p, const Heads& heads, std::int64_t b,
                                  std::int64_t h, int begin, int end,
                                  const float (&sums)[kDepth / 8][4], float factor_of_low,
                                  float factor_of_high, T* shared) {
  const int lane = lane_of_warp();
  __syncwarp();
#pragma unroll
  for (int n = 0; n < kDepth / 8; ++n) {
    T* const low = shared + lane / 4 * kRowStride<kDepth> + n * 8 + lane % 4 * 2;
    *reinterpret_cast<unsigned*>(low) =
        pack_pair<T>(sums[n][0] * factor_of_low, sums[n][1] * factor_of_low);
    *reinterpret_cast<unsigned*>(low + 8 * kRowStride<kDepth>) =
        pack_pair<T>(sums[n][2] * factor_of_high, sums[n][3] * factor_of_high);
  }
  __syncwarp();
  constexpr int kChunks = kDepth / kChunk;
  T* const head = head_of<T>(heads, b, h);
#pragma unroll
  for (int i = 0; i < 16 * kChunks / 32; ++i) {
    const int at = i * 32 + lane, row = at / kChunks, d = at % kChunks * kChunk;
    if (begin + row >= end || d >= p.head_size) continue;
    *reinterpret_cast<uint4*>(head + static_cast<std::int64_t>(begin + row) * heads.row + d) =
        *reinterpret_cast<const uint4*>(shared + row * kRowStride<kDepth> + d);
  }
}

// A product of a query and a key as a score in base 2: 2^score is the softmax's exponential.
template <bool kCapped>
__device__ inline float binary_score(const AttentionProblem& p, float product) {
  return kCapped ? score_of<true>(p, product) * kLog2OfE : product * (p.factor * kLog2OfE);
}

// The largest value, or the sum, of the four lanes that hold a row.
__device__ inline float row_max(float value) {
#pragma unroll
  for (int offset = 2; offset > 0; offset /= 2) {
    const float other = __shfl_xor_sync(kAllLanes, value, offset);
    value = other > value ? other : value;
  }
  return value;
}
__device__ inline float row_sum(float value) {
#pragma unroll
  for (int offset = 2; offset > 0; offset /= 2) {
    value += __shfl_xor_sync(kAllLanes, value, offset);
  }
  return value;
}

// What a thread knows of one of its two rows of queries: the keys that it sees, none if it is
// behind the last one; and what it has summed.
struct Query {
  int first = 0, end = 0;
  float maximum = -infinity(), sum = 0.0f;

  __device__ Query(const AttentionProblem& p, std::int64_t b, int t) {
    if (t >= p.length) return;
    first = static_cast<int>(first_key_of(p, b, t));
    end = static_cast<int>(key_end_of(p, b, t));
  }
  __device__ bool sees(int key) const { return first <= key && key < end; }
};

// Replaces products by 2^(score - maximum). Returns what earlier sums are to be multiplied by.
// high: 0 for the lower row, 2 for the other.
template <bool kCapped, int kColumns>
__device__ inline float softmax_row(const AttentionProblem& p, float (&scores)[kColumns / 8][4],
                                    int high, int key, bool all_seen, Query& query) {
  float top = query.maximum;
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      float& score = scores[n][high + i];
      const bool seen = all_seen || query.sees(key + n * 8 + lane_of_warp() % 4 * 2 + i);
      score = seen ? binary_score<kCapped>(p, score) : -infinity();
      top = score > top ? score : top;
    }
  }
  top = row_max(top);
  // If a query has seen no key yet, any finite base gives weights of 0, not NaN.
  const float base = top == -infinity() ? 0.0f : top;
  const float rescale = exp2f(query.maximum - base);
  float total = 0.0f;
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      scores[n][high + i] = exp2f(scores[n][high + i] - base);
      total += scores[n][high + i];
    }
  }
  query.sum = query.sum * rescale + row_sum(total);
  query.maximum = top;
  return rescale;
}

template <class T, int kDepth>
constexpr std::size_t bytes_of_panels(int rows) {
  return sizeof(T) * kRowStride<kDepth> * static_cast<std::size_t>(rows);
}

template <class T, int kDepth, bool kCapped>
__global__ void __launch_bounds__(kThreads, kDepth > 64 ? 2 : 3)
    attention_tensor_kernel(AttentionProblem p, const KeySpan* spans, Heads q, Heads k, Heads v,
                            Heads out, float* log_sum) {
  constexpr int kKeys = 64, kPanel = kKeys * kRowStride<kDepth>;
  TRIREME_DYNAMIC_SHARED(T, shared);
  const std::int64_t b = blockIdx.z, h = blockIdx.y;
  // The tiles with most keys come first.
  const int begin = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kOwn;
  const int length = static_cast<int>(p.length), end = smaller(begin + kOwn, length);
  const KeySpan span = span_of<kOwn>(p, spans, b, begin, end);
  const int warp = static_cast<int>(threadIdx.x / 32), mine = begin + warp * 16;
  T* const queries = shared;
  T* const my_queries = queries + warp * 16 * kRowStride<kDepth>;
  T* const tiles = queries + kOwn * kRowStride<kDepth>;  // keys and values of two tiles
  const auto copy_tile = [&](int key, int stage) {
    T* const to = tiles + stage * 2 * kPanel;
    copy_rows<T, kDepth, kKeys>(p, k, b, h / p.group, key, span.end, to);
    copy_rows<T, kDepth, kKeys>(p, v, b, h / p.group, key, span.end, to + kPanel);
  };
  copy_rows<T, kDepth, kOwn>(p, q, b, h, begin, end, queries);
  Query low(p, b, mine + lane_of_warp() / 4), high(p, b, mine + lane_of_warp() / 4 + 8);
  float sums[kDepth / 8][4] = {};
  int key = span.begin / kKeys * kKeys, stage = 0;
  copy_tile(key, stage);
  for (; key < span.end; key += kKeys, stage ^= 1) {
    wait_for_copies();
    __syncthreads();  // the tile is there, and nobody reads the one before any more
    if (key + kKeys < span.end) copy_tile(key + kKeys, stage ^ 1);
    const T* const keys = tiles + stage * 2 * kPanel;
    const bool all_seen = span.covers(key, key + kKeys);
    float scores[kKeys / 8][4];
    dot_products<T, kDepth, kKeys>(my_queries, keys, scores);
    const float rescale_low = softmax_row<kCapped, kKeys>(p, scores, 0, key, all_seen, low);
    const float rescale_high = softmax_row<kCapped, kKeys>(p, scores, 2, key, all_seen, high);
#pragma unroll
    for (int n = 0; n < kDepth / 8; ++n) {
      sums[n][0] *= rescale_low, sums[n][1] *= rescale_low;
      sums[n][2] *= rescale_high, sums[n][3] *= rescale_high;
    }
    add_weighted_rows<T, kDepth, kKeys>(scores, keys + kPanel, sums);
  }
  wait_for_copies();  // of queries that see nothing
  __syncthreads();
  store_rows<T, kDepth>(p, out, b, h, mine, end, sums, 1.0f / low.sum, 1.0f / high.sum, my_queries);
  if (log_sum == nullptr || lane_of_warp() % 4 != 0) return;
  float* const saved = log_sum + (b * p.heads + h) * p.length;
  const int t = mine + lane_of_warp() / 4;
  if (t < end) saved[t] = (low.maximum + log2f(low.sum)) * kLogOf2;
  if (t + 8 < end) saved[t + 8] = (high.maximum + log2f(high.sum)) * kLogOf2;
}

// What a weight needs of its query.
struct alignas(16) QueryFacts {
  int first, end;        // the keys that it sees
  float log_sum, delta;  // in base 2; sum over d of out * dout

  __device__ bool sees(int key) const { return first <= key && key < end; }
};
__device__ inline QueryFacts facts_of(const AttentionProblem& p, const BackwardHeads& heads,
                                      std::int64_t b, std::int64_t h, int t) {
  if (t >= p.length) return {0, 0, 0.0f, 0.0f};
  const std::int64_t saved = (b * p.heads + h) * p.length + t;
  return {static_cast<int>(first_key_of(p, b, t)), static_cast<int>(key_end_of(p, b, t)),
          heads.log_sum[saved] * kLog2OfE, heads.delta[saved]};
}

// Replaces a product of a query and a key by its weight, and the weight's gradient by the product's
// gradient.
template <bool kCapped>
__device__ inline void differentiate(const AttentionProblem& p, const QueryFacts& query, bool seen,
                                     float& score, float& gradient) {
  const float binary = binary_score<kCapped>(p, score);
  const float weight = seen ? exp2f(binary - query.log_sum) : 0.0f;
  float slope = weight * (gradient - query.delta) * p.factor;  // before fp16 may overflow
  if constexpr (kCapped) {
    const float share = binary * (kLogOf2 * p.inverse_cap);
    slope *= 1.0f - share * share;
  }
  score = weight;
  gradient = seen ? slope : 0.0f;
}

// dK and dV of 64 keys, over all query heads that share them. Scores are keys x queries here.
template <class T, int kDepth, bool kCapped>
__global__ void __launch_bounds__(kThreads, 2)
    attention_backward_keys_tensor_kernel(AttentionProblem p, const KeySpan* spans,
                                          BackwardHeads heads) {
  constexpr int kQueries = kTile<kDepth>, kPanel = kQueries * kRowStride<kDepth>;
  TRIREME_DYNAMIC_SHARED(T, shared);
  const std::int64_t b = blockIdx.z, kv_head = blockIdx.y;
  const int begin = static_cast<int>(blockIdx.x) * kOwn, length = static_cast<int>(p.length);
  const int end = smaller(begin + kOwn, length);
  const int warp = static_cast<int>(threadIdx.x / 32), mine = begin + warp * 16;
  T* const keys = shared + warp * 16 * kRowStride<kDepth>;  // of this warp
  T* const values = keys + kOwn * kRowStride<kDepth>;
  T* const tiles = shared + 2 * kOwn * kRowStride<kDepth>;  // queries and dout of two tiles
  auto* const facts = reinterpret_cast<QueryFacts*>(tiles + 4 * kPanel);
  copy_rows<T, kDepth, kOwn>(p, heads.k, b, kv_head, begin, end, shared);
  copy_rows<T, kDepth, kOwn>(p, heads.v, b, kv_head, begin, end,
                             shared + kOwn * kRowStride<kDepth>);

  // Tiles are numbered head by head. These are the same in all threads.
  const int first = p.causal ? begin / kQueries : 0;
  // No query behind a window's length from the last key sees one of ours.
  const std::int64_t reach = p.window > 0 ? end - 1 + p.window : p.length;
  const int behind = reach < p.length ? static_cast<int>(reach) : length;
  const int per_head = (behind + kQueries - 1) / kQueries - first;
  const int count = per_head * static_cast<int>(p.group);
  KeySpan span{};
  const auto query_of = [&](int tile) { return (first + tile % per_head) * kQueries; };
  const auto next_seen = [&](int tile) {  // the first from `tile` on whose queries see keys of ours
    for (; tile < count; ++tile) {
      const int query = query_of(tile);
      span = span_of<kQueries>(p, spans, b, query, smaller(query + kQueries, length));
      if (span.begin < end && begin < span.end) break;
    }
    return tile;
  };
  const auto copy_tile = [&](int tile, int stage) {
    const std::int64_t h = kv_head * p.group + tile / per_head;
    const int query = query_of(tile), last = smaller(query + kQueries, length);
    T* const to = tiles + stage * 2 * kPanel;
    copy_rows<T, kDepth, kQueries>(p, heads.q, b, h, query, last, to);
    copy_rows<T, kDepth, kQueries>(p, heads.dout, b, h, query, last, to + kPanel);
    const int thread = static_cast<int>(threadIdx.x);
    if (thread < kQueries) {
      facts[stage * kQueries + thread] = facts_of(p, heads, b, h, query + thread);
    }
  };

  float dkeys[kDepth / 8][4] = {}, dvalues[kDepth / 8][4] = {};
  int tile = next_seen(0), stage = 0;
  if (tile < count) copy_tile(tile, stage);
  while (tile < count) {
    const bool all_seen = span.covers(begin, end);  // what is behind the last is 0
    wait_for_copies();
    __syncthreads();  // the tile is there, and nobody reads the one before any more
    const int next = next_seen(tile + 1);
    if (next < count) copy_tile(next, stage ^ 1);
    const T* const queries = tiles + stage * 2 * kPanel;
    const T* const dout = queries + kPanel;
    float weights[kQueries / 8][4], slopes[kQueries / 8][4];
    dot_products<T, kDepth, kQueries>(keys, queries, weights);
    dot_products<T, kDepth, kQueries>(values, dout, slopes);
#pragma unroll
    for (int n = 0; n < kQueries / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const QueryFacts query = facts[stage * kQueries + n * 8 + lane_of_warp() % 4 * 2 + i];
        const int key = mine + lane_of_warp() / 4;
        differentiate<kCapped>(p, query, all_seen || query.sees(key), weights[n][i], slopes[n][i]);
        differentiate<kCapped>(p, query, all_seen || query.sees(key + 8), weights[n][2 + i],
                               slopes[n][2 + i]);
      }
    }
    add_weighted_rows<T, kDepth, kQueries>(weights, dout, dvalues);
    add_weighted_rows<T, kDepth, kQueries>(slopes, queries, dkeys);
    tile = next;
    stage ^= 1;
  }
  wait_for_copies();  // of keys that nobody sees
  __syncthreads();
  store_rows<T, kDepth>(p, heads.dk, b, kv_head, mine, end, dkeys, 1.0f, 1.0f, keys);
  store_rows<T, kDepth>(p, heads.dv, b, kv_head, mine, end, dvalues, 1.0f, 1.0f, values);
}

// dQ of 64 queries.
template <class T, int kDepth, bool kCapped>
__global__ void __launch_bounds__(kThreads, kDepth > 64 || kCapped ? 2 : 3)
    attention_backward_queries_tensor_kernel(AttentionProblem p, const KeySpan* spans,
                                             BackwardHeads heads) {
  constexpr int kKeys = kTile<kDepth>, kPanel = kKeys * kRowStride<kDepth>;
  TRIREME_DYNAMIC_SHARED(T, shared);
  const std::int64_t b = blockIdx.z, h = blockIdx.y, kv_head = h / p.group;
  const int begin = static_cast<int>(gridDim.x - 1 - blockIdx.x) * kOwn;
  const int length = static_cast<int>(p.length), end = smaller(begin + kOwn, length);
  const KeySpan span = span_of<kOwn>(p, spans, b, begin, end);
  const int warp = static_cast<int>(threadIdx.x / 32), mine = begin + warp * 16;
  T* const queries = shared + warp * 16 * kRowStride<kDepth>;  // of this warp
  T* const dout = queries + kOwn * kRowStride<kDepth>;
  T* const tiles = shared + 2 * kOwn * kRowStride<kDepth>;  // keys and values of two tiles
  copy_rows<T, kDepth, kOwn>(p, heads.q, b, h, begin, end, shared);
  copy_rows<T, kDepth, kOwn>(p, heads.dout, b, h, begin, end, shared + kOwn * kRowStride<kDepth>);
  const auto copy_tile = [&](int key, int stage) {
    T* const to = tiles + stage * 2 * kPanel;
    copy_rows<T, kDepth, kKeys>(p, heads.k, b, kv_head, key, span.end, to);
    copy_rows<T, kDepth, kKeys>(p, heads.v, b, kv_head, key, span.end, to + kPanel);
  };
  const QueryFacts low = facts_of(p, heads, b, h, mine + lane_of_warp() / 4);
  const QueryFacts high = facts_of(p, heads, b, h, mine + lane_of_warp() / 4 + 8);
  float dqueries[kDepth / 8][4] = {};
  int key = span.begin / kKeys * kKeys, stage = 0;
  copy_tile(key, stage);
  for (; key < span.end; key += kKeys, stage ^= 1) {
    wait_for_copies();
    __syncthreads();  // the tile is there, and nobody reads the one before any more
    if (key + kKeys < span.end) copy_tile(key + kKeys, stage ^ 1);
    const T* const keys = tiles + stage * 2 * kPanel;
    const bool all_seen = span.covers(key, key + kKeys);
    float weights[kKeys / 8][4], slopes[kKeys / 8][4];
    dot_products<T, kDepth, kKeys>(queries, keys, weights);
    dot_products<T, kDepth, kKeys>(dout, keys + kPanel, slopes);
#pragma unroll
    for (int n = 0; n < kKeys / 8; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        const int at = key + n * 8 + lane_of_warp() % 4 * 2 + i;
        differentiate<kCapped>(p, low, all_seen || low.sees(at), weights[n][i], slopes[n][i]);
        differentiate<kCapped>(p, high, all_seen || high.sees(at), weights[n][2 + i],
                               slopes[n][2 + i]);
      }
    }
    add_weighted_rows<T, kDepth, kKeys>(slopes, keys, dqueries);
  }
  wait_for_copies();  // of queries that see nothing
  __syncthreads();
  store_rows<T, kDepth>(p, heads.dq, b, h, mine, end, dqueries, 1.0f, 1.0f, queries);
}

// Calls body(T(), depth, capped), of types that carry the kernel's constants.
template <class Body>
void with_kernel(const AttentionProblem& p, DType dtype, const Body& body) {
  const auto by_cap = [&](auto type, auto depth) {
    if (p.cap > 0.0f) return body(type, depth, std::true_type());
    body(type, depth, std::false_type());
  };
  const auto by_depth = [&](auto type) {
    if (p.head_size <= 32) return by_cap(type, std::integral_constant<int, 32>());
    if (p.head_size <= 64) return by_cap(type, std::integral_constant<int, 64>());
    by_cap(type, std::integral_constant<int, 128>());
  };
  if (dtype == DType::kBF16) return by_depth(BFloat16());
  by_depth(Half());
}

// The spans of all queries, or nothing where they follow from the shape.
Tensor spans_for(Context& ctx, const AttentionShape& s, const AttentionProblem& p) {
  if (p.first_key == nullptr && p.key_end == nullptr) return {};
  const Tensor spans = spans_of_attention(ctx, s);
  const std::int64_t count = blocks_for(s.length, kRowsOfSpan), all = s.batch * count;
  launch(attention_spans_kernel, extent(blocks_for(all, kWarps)), kThreads, 0, ctx.stream, p,
         static_cast<KeySpan*>(spans.raw()), static_cast<int>(count), static_cast<int>(all));
  return spans;
}

}  // namespace

void attend_on_tensor_cores(Context& ctx, const AttentionShape& s, const AttentionProblem& problem,
                            const Heads& q, const Heads& k, const Heads& v, const Heads& out,
                            float* log_sum) {
  const Tensor spans = spans_for(ctx, s, problem);
  with_kernel(problem, q.data.type, [&](auto type, auto depth, auto capped) {
    using T = decltype(type);
    constexpr int kDepth = decltype(depth)::value;
    const dim3 grid(extent(blocks_for(s.length, kOwn)), extent(s.heads), extent(s.batch));
    launch(attention_tensor_kernel<T, kDepth, decltype(capped)::value>, grid, kThreads,
           bytes_of_panels<T, kDepth>(kOwn + 4 * 64), ctx.stream, problem,
           static_cast<const KeySpan*>(spans.raw()), q, k, v, out, log_sum);
  });
}

void differentiate_on_tensor_cores(Context& ctx, const AttentionShape& s,
                                   const AttentionProblem& problem, const BackwardHeads& heads) {
  const Tensor spans = spans_for(ctx, s, problem);
  with_kernel(problem, heads.q.data.type, [&](auto type, auto depth, auto capped) {
    using T = decltype(type);
    constexpr int kDepth = decltype(depth)::value;
    constexpr bool kCapped = decltype(capped)::value;
    constexpr int kRows = kTile<kDepth>;
    const unsigned tiles = extent(blocks_for(s.length, kOwn)), batch = extent(s.batch);
    const std::size_t panels = bytes_of_panels<T, kDepth>(2 * kOwn + 4 * kRows);
    const auto* const known = static_cast<const KeySpan*>(spans.raw());
    launch(attention_backward_keys_tensor_kernel<T, kDepth, kCapped>,
           dim3(tiles, extent(s.kv_heads), batch), kThreads,
           panels + 2 * kRows * sizeof(QueryFacts), ctx.stream, problem, known, heads);
    launch(attention_backward_queries_tensor_kernel<T, kDepth, kCapped>,
           dim3(tiles, extent(s.heads), batch), kThreads, panels, ctx.stream, problem, known,
           heads);
  });
}

}  // namespace trireme::ops::gpu
