// RMS norms of the queries and keys of packed QKV (attention.h). The sums over channels are steps
// of their own, so that ranks that share the heads of a norm can add them up in between.
#pragma once

#include "trireme/ops/attention.h"
#include "trireme/ops/norm.h"

namespace trireme::ops {

// A group of heads is normalized together: one head, or, with `whole`, all query heads, and all
// key heads. Groups are numbered in the order of their channels.
struct HeadNorm {
  AttentionShape shape;
  bool whole = false;
  // The channels that a group's mean is of: head_size, or those of the heads of all ranks.
  std::int64_t query_width = 0, key_width = 0;
  // This rank's part of what all ranks count of the key heads: 1 / the ranks that hold copies.
  // Without `whole` it is 1.
  float key_share = 1.0f;
  float epsilon = 1e-6f;
  NormFactor query, key;  // (channels of a group)

  std::int64_t groups() const { return whole ? 2 : shape.heads + shape.kv_heads; }
  std::int64_t rows() const { return shape.batch * shape.length; }
  std::int64_t channels() const { return (shape.heads + shape.kv_heads) * shape.head_size; }
};

// squares (rows, groups) fp32 = the sums of the squares of qkv over this rank's channels.
void head_squares(Context& ctx, const HeadNorm& norm, const Tensor& qkv, const Tensor& squares);
// y, of qkv's shape: queries and keys are multiplied by rstd * factor, with rstd = 1 / sqrt(squares
// / width + epsilon); values are as they are in qkv.
void head_norm(Context& ctx, const HeadNorm& norm, const Tensor& qkv, const Tensor& squares,
               const Tensor& y);
// dots (rows, groups) fp32 = the sums of dy * factor * qkv over this rank's channels.
void head_norm_dots(Context& ctx, const HeadNorm& norm, const Tensor& dy, const Tensor& qkv,
                    const Tensor& dots);
// dqkv = the gradient of qkv; it may be dy. squares and dots are those of all ranks.
void head_norm_backward_input(Context& ctx, const HeadNorm& norm, const Tensor& dy,
                              const Tensor& qkv, const Tensor& squares, const Tensor& dots,
                              const Tensor& dqkv);
// Adds to the gradients of both factors, fp32, in an order that does not depend on the number of
// threads. Either may be undefined.
void head_norm_backward_weight(Context& ctx, const HeadNorm& norm, const Tensor& dy,
                               const Tensor& qkv, const Tensor& squares, const Tensor& dquery,
                               const Tensor& dkey);

}  // namespace trireme::ops
