// Attention, causal or bidirectional, and rotary positions on packed QKV:
// qkv (batch * length, (heads + 2 * kv_heads) * head_size). A row holds the query heads, then the
// key heads, then the value heads.
#pragma once

#include <compare>
#include <string>
#include <utility>
#include <vector>

#include "trireme/ops/context.h"

namespace trireme::ops {

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t length = 0;    // positions per sample in this call
  std::int64_t heads = 0;     // query heads; a multiple of kv_heads
  std::int64_t kv_heads = 0;  // query head h reads key and value head h / (heads / kv_heads)
  std::int64_t head_size = 0;
  bool causal = true;       // a position reads no later one; otherwise it reads all of its sample
  std::int64_t window = 0;  // a position reads the last so many keys, its own included; 0: all.
                            // Only with `causal`
  float scale = 0.0f;       // multiplies the products of queries and keys; 0: 1 / sqrt(head_size)
  float cap = 0.0f;         // scaled products s become cap * tanh(s / cap); 0: as they are

  auto operator<=>(const AttentionShape&) const = default;
  std::int64_t row() const { return (heads + 2 * kv_heads) * head_size; }
  float factor() const;  // `scale`, or what stands for 0
  bool reads_windows() const { return window > 0 && window < length; }  // not all keys before it
  // The pairs of a query and a key of one head of one sample that are computed, unless KeyRanges
  // leave some out.
  double pairs() const;
};

// The keys that positions read, besides what AttentionShape::causal says. Position t of sample b
// reads the keys of positions first[b * length + t] to end[b * length + t] - 1. Both are (batch *
// length) int32 or undefined: without `first` all positions start at key 0, which otherwise masks
// across documents; without `end` they read to the end of the sample, which otherwise masks padding
// or, in bidirectional attention, later documents. Each position must read one key or more, also of
// those that a window leaves.
struct KeyRanges {
  // The constructor is implicit, since most calls have `first` alone.
  KeyRanges(Tensor first_key = {}, Tensor key_end = {})
      : first(std::move(first_key)), end(std::move(key_end)) {}
  Tensor first, end;
};

// out (batch * length, heads * head_size) = softmax(q k^T / sqrt(head_size), masked) v.
// log_sum (batch * heads * length) fp32 is saved for the backward. Works in tiles (Dao et al.
// 2022), so the length x length matrices of all heads never exist at once.
void attention(Context& ctx, const AttentionShape& shape, const Tensor& qkv, const KeyRanges& keys,
               const Tensor& out, const Tensor& log_sum);
// dqkv has the shape of qkv. Recomputes the attention weights from qkv and log_sum. Deterministic.
void attention_backward(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
                        const KeyRanges& keys, const Tensor& out, const Tensor& log_sum,
                        const Tensor& dout, const Tensor& dqkv);

// What computes the two functions above.
struct AttentionChoice {
  std::string by;    // "cuDNN 9.19.0", "own kernel" or, on a GPU, "own kernel on tensor cores";
                     // affects the bits of results
  std::string text;  // a line for the user: `by`, and on a GPU why it is not the library:
                     // "own kernel on tensor cores (cuDNN 9.19.0: documents are masked)"
};
// dtype: the type of qkv. Compiles what a first call of the functions would compile, which may take
// seconds.
AttentionChoice attention_choice(const Context& ctx, const AttentionShape& shape, DType dtype,
                                 bool masks_documents);

// Generation: `shape.length` new positions follow `past` cached ones. Appends the new keys and
// values to keys and values (batch, capacity, kv_heads * head_size) and attends over past and new
// positions. first_key (batch * length) is KeyRanges::first, counted in positions of the cache.
// `shape` must be causal.
void attention_cached(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
                      std::int64_t past, const Tensor& first_key, const Tensor& keys,
                      const Tensor& values, const Tensor& out);

// How queries and keys turn with their positions (Su et al. 2021).
struct Rotation {
  // The angle, in radians, by which pair i of a head's channels turns from one position to the
  // next. Channels behind those of the pairs do not turn.
  std::vector<double> frequencies;
  bool adjacent = false;   // pair i is channels 2 i and 2 i + 1; otherwise i and i + pairs
  float amplitude = 1.0f;  // multiplies the channels of the pairs (YaRN)
  // Queries at position p are multiplied by 1 + query_growth * log(1 + floor(p / query_period))
  // (Ministral 3). query_growth 0: they are not.
  float query_growth = 0.0f;
  std::int64_t query_period = 1;

  bool operator==(const Rotation&) const = default;
};
// Llama's: theta^(-2 i / channels) for half as many pairs as `channels`, which is even.
Rotation plain_rotation(double theta, std::int64_t channels);

// Turns the query and key heads of qkv, in place. Row i is position first_position + i % length.
// inverse: turns back, with the same factors, which is the backward. A GPU takes 128 pairs at most.
void rotary(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
            std::int64_t first_position, const Rotation& rotation, bool inverse);

}  // namespace trireme::ops
