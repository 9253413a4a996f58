// Attention as its kernels see it: where heads are in memory, and which keys a query sees.
#pragma once

#include "trireme/ops/attention.h"

#include "ops/gpu/math.h"
#include "ops/gpu/view.h"

namespace trireme::ops::gpu {

// Access to elements (sample, head, position, d) of queries, keys, values or their gradients.
struct Heads {
  View<Any> data;
  std::int64_t offset, sample, row, head;  // strides, in elements

  __device__ std::int64_t first(std::int64_t b, std::int64_t h) const {
    return offset + b * sample + h * head;
  }
};
inline Heads heads_of_qkv(const Tensor& qkv, const AttentionShape& s, std::int64_t first_head) {
  return {View<Any>(qkv), first_head * s.head_size, s.length * s.row(), s.row(), s.head_size};
}
inline Heads heads_of_out(const Tensor& out, const AttentionShape& s) {
  const std::int64_t row = s.heads * s.head_size;
  return {View<Any>(out), 0, s.length * row, row, s.head_size};
}

struct AttentionProblem {
  std::int64_t length, past, keys;  // queries, keys before query 0, keys
  std::int64_t heads, group;        // query heads, and the number that share a key head
  int head_size;
  float factor, cap, inverse_cap;  // without a cap both are 0
  bool causal;
  std::int64_t window;            // AttentionShape::window
  const std::int32_t* first_key;  // or null
  const std::int32_t* key_end;    // or null
};
inline AttentionProblem problem_of(const AttentionShape& s, std::int64_t past,
                                   const KeyRanges& keys) {
  return {s.length,
          past,
          past + s.length,
          s.heads,
          s.heads / s.kv_heads,
          static_cast<int>(s.head_size),
          s.factor(),
          s.cap,
          s.cap > 0.0f ? 1.0f / s.cap : 0.0f,
          s.causal,
          s.window,
          device_data<std::int32_t>(keys.first),
          device_data<std::int32_t>(keys.end)};
}

// first_key_of, key_end_of: the range of keys that query t of sample b may see. sees: whether it
// sees key u.
__device__ inline std::int64_t first_key_of(const AttentionProblem& p, std::int64_t b,
                                            std::int64_t t) {
  const std::int64_t given = p.first_key == nullptr ? 0 : p.first_key[b * p.length + t];
  const std::int64_t first = p.window > 0 ? p.past + t + 1 - p.window : 0;
  return given > first ? given : first;
}
__device__ inline std::int64_t key_end_of(const AttentionProblem& p, std::int64_t b,
                                          std::int64_t t) {
  const std::int64_t end = p.causal ? p.past + t + 1 : p.keys;
  if (p.key_end == nullptr) return end;
  const std::int64_t given = p.key_end[b * p.length + t];
  return given < end ? given : end;
}
__device__ inline bool sees(const AttentionProblem& p, std::int64_t b, std::int64_t t,
                            std::int64_t u) {
  return t < p.length && u < key_end_of(p, b, t) && u >= first_key_of(p, b, t);
}
// A score as the softmax sees it, from a product of a query and a key; and what the gradient of
// such a score is multiplied by to be that of the product.
template <bool kCapped>
__device__ inline float score_of(const AttentionProblem& p, float product) {
  const float score = product * p.factor;
  return kCapped ? p.cap * tanh_of(score * p.inverse_cap) : score;
}
template <bool kCapped>
__device__ inline float slope_of(const AttentionProblem& p, float score) {
  const float share = kCapped ? score * p.inverse_cap : 0.0f;
  return p.factor * (1.0f - share * share);
}

// The first key that any query of [begin, end) may see.
__device__ inline std::int64_t lowest_key(const AttentionProblem& p, std::int64_t b,
                                          std::int64_t begin, std::int64_t end) {
  if (p.first_key == nullptr) return first_key_of(p, b, begin);
  std::int64_t lowest = first_key_of(p, b, begin);
  for (std::int64_t t = begin + 1; t < end; ++t) {
    const std::int64_t key = first_key_of(p, b, t);
    lowest = key < lowest ? key : lowest;
  }
  return lowest;
}

// The end of the keys that any query of [begin, end) may see.
__device__ inline std::int64_t highest_key_end(const AttentionProblem& p, std::int64_t b,
                                               std::int64_t begin, std::int64_t end) {
  if (p.key_end == nullptr) return key_end_of(p, b, end - 1);
  std::int64_t highest = key_end_of(p, b, begin);
  for (std::int64_t t = begin + 1; t < end; ++t) {
    const std::int64_t key = key_end_of(p, b, t);
    highest = key > highest ? key : highest;
  }
  return highest;
}

}  // namespace trireme::ops::gpu
