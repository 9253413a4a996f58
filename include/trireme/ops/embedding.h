// Rows of a table by number.
#pragma once

#include "trireme/ops/context.h"

namespace trireme::ops {

// y (rows, C) = table row (tokens[i] - first_token), zero where that row is not in table (local,
// C): a rank that holds a part of the vocabulary gets its part of the sum. tokens (rows) int32.
void embedding(Context& ctx, const Tensor& tokens, const Tensor& table, std::int64_t first_token,
               const Tensor& y);
// dtable (local, C) fp32 += dy rows, for each token in an order that the tokens alone fix: the same
// bits at any thread count.
void embedding_backward(Context& ctx, const Tensor& tokens, const Tensor& dy,
                        std::int64_t first_token, const Tensor& dtable);

// y (rows, C) = x + table row (first_position + (first_row + i) % length): learned positions.
// table (positions, C); y may be x.
void add_positions(Context& ctx, const Tensor& x, const Tensor& table, std::int64_t first_row,
                   std::int64_t length, std::int64_t first_position, const Tensor& y);
// dtable (positions, C) fp32 += dy rows, in row order for each position.
void add_positions_backward(Context& ctx, const Tensor& dy, std::int64_t first_row,
                            std::int64_t length, const Tensor& dtable);

}  // namespace trireme::ops
