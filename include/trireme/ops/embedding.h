// Embeddings: rows of a table, looked up by token or by position; and rows of samples, looked up by
// place.
#pragma once

#include "trireme/ops/context.h"

namespace trireme::ops {

// Row i of y (rows, C) = row tokens[i] - first_token of table (local, C), or zero if table has no
// such row. So a rank that holds a part of the vocabulary gets its part of the sum over the ranks.
// tokens (rows) int32.
void embedding(Context& ctx, const Tensor& tokens, const Tensor& table, std::int64_t first_token,
               const Tensor& y);
// dtable (local, C) fp32 += the rows of dy. For each token they are added in an order that depends
// on the tokens alone, so the bits are the same with any number of threads.
void embedding_backward(Context& ctx, const Tensor& tokens, const Tensor& dy,
                        std::int64_t first_token, const Tensor& dtable);

// Learned positions: row i of y (rows, C) = row i of x + row
// first_position + (first_row + i) % length of table (positions, C). y may be x.
void add_positions(Context& ctx, const Tensor& x, const Tensor& table, std::int64_t first_row,
                   std::int64_t length, std::int64_t first_position, const Tensor& y);
// dtable (positions, C) fp32 += the rows of dy, in row order for each position.
void add_positions_backward(Context& ctx, const Tensor& dy, std::int64_t first_row,
                            std::int64_t length, const Tensor& dtable);

// Some neighbouring rows of each sample of x (batch * x_length, C), and where they belong in the
// samples of y (batch * y_length, C).
struct SampleRows {
  std::int64_t batch = 0, count = 0;       // samples; rows of each
  std::int64_t x_length = 0, x_first = 0;  // x_length 0: x has the rows of one sample, for all
  std::int64_t y_length = 0, y_first = 0;
};
// Copies them. The other rows of y stay as they are. y may not be x.
void copy_rows(Context& ctx, const SampleRows& rows, const Tensor& x, const Tensor& y);

}  // namespace trireme::ops
