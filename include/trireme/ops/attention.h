// Causal attention and rotary positions, on query, key and value side by side in one row:
// qkv (batch * length, (heads + 2 * kv_heads) * head_size), heads first, then keys, then values.
#pragma once

#include <compare>
#include <string>

#include "trireme/ops/context.h"

namespace trireme::ops {

struct AttentionShape {
  std::int64_t batch = 0;
  std::int64_t length = 0;    // positions per sample in this call
  std::int64_t heads = 0;     // query heads; a multiple of kv_heads
  std::int64_t kv_heads = 0;  // query head h reads key and value head h / (heads / kv_heads)
  std::int64_t head_size = 0;

  auto operator<=>(const AttentionShape&) const = default;
  std::int64_t row() const { return (heads + 2 * kv_heads) * head_size; }
};

// out (batch * length, heads * head_size) = softmax(q k^T / sqrt(head_size), causal) v.
// Position t reads keys from first_key[b * length + t] to t; first_key (batch * length) int32 masks
// across documents, undefined: from 0. log_sum (batch * heads * length) fp32 is saved for the
// backward. Works in tiles (Dao et al. 2022): never holds all heads' length x length matrices.
void attention(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
               const Tensor& first_key, const Tensor& out, const Tensor& log_sum);
// dqkv like qkv. Recomputes the weights from qkv and log_sum. Deterministic.
void attention_backward(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
                        const Tensor& first_key, const Tensor& out, const Tensor& log_sum,
                        const Tensor& dout, const Tensor& dqkv);

// Who computes the two above, in one line for a person, "cuDNN 9.19.0" or "own kernel (cuDNN: ...)"
// with the reason; it decides bits. dtype: of qkv. Compiles what a first call would.
std::string attention_description(const Context& ctx, const AttentionShape& shape, DType dtype,
                                  bool masks_documents);

// Generation: `shape.length` new positions follow `past` cached ones. Appends the new keys and
// values to keys, values (batch, capacity, kv_heads * head_size) and attends over past + new, each
// new position from its first_key on, as in attention(): (batch * length), counted in the cache.
void attention_cached(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
                      std::int64_t past, const Tensor& first_key, const Tensor& keys,
                      const Tensor& values, const Tensor& out);

// Rotary positions (Su et al. 2021) in the half-split form of Llama, in place on the query and key
// heads of qkv. Row i of a sample is position first_position + i % length. inverse: rotates back
// (the backward of itself).
void rotary(Context& ctx, const AttentionShape& shape, const Tensor& qkv,
            std::int64_t first_position, float theta, bool inverse);

}  // namespace trireme::ops
