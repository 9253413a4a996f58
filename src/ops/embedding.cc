#include "trireme/ops/embedding.h"

#include <algorithm>

#include <fmt/format.h>

#include "ops/check.h"
#include "ops/device_ops.h"
#include "ops/gpu/workspace.h"

namespace trireme::ops {
namespace {

void check_matrix(std::string_view op, std::string_view name, const Tensor& x) {
  check_floating(op, name, x);
  check_rank(op, name, x, 2);
}

void check_tokens(std::string_view op, const Tensor& tokens, const Tensor& y) {
  check_dtype(op, "tokens", tokens, {DType::kI32});
  check_shape(op, "tokens", tokens, {y.shape()[0]});
}

// Each row is read or written here and in the table, of which the other rows are not touched.
Cost rows_moved(const Tensor& tokens, const Tensor& rows) {
  return {.bytes = bytes_of(tokens) + 2 * bytes_of(rows)};
}

}  // namespace

void embedding(Context& ctx, const Tensor& tokens, const Tensor& table, std::int64_t first_token,
               const Tensor& y) {
  check_matrix("embedding", "y", y);
  check_tokens("embedding", tokens, y);
  check_matrix("embedding", "table", table);
  check_shape("embedding", "table", table, {table.shape()[0], y.shape()[1]});
  dispatch(TRIREME_OP(embedding), rows_moved(tokens, y), ctx, tokens, table, first_token, y);
}

void embedding_backward(Context& ctx, const Tensor& tokens, const Tensor& dy,
                        std::int64_t first_token, const Tensor& dtable) {
  check_matrix("embedding_backward", "dy", dy);
  check_tokens("embedding_backward", tokens, dy);
  check_rank("embedding_backward", "dtable", dtable, 2);
  check_fp32("embedding_backward", "dtable", dtable, {dtable.shape()[0], dy.shape()[1]});
  if (on_dry_gpu(ctx)) {
    gpu::ask_for_embedding_backward(ctx, dy.shape()[0], dy.shape()[1], dtable.shape()[0]);
  }
  dispatch(TRIREME_OP(embedding_backward), rows_moved(tokens, dy), ctx, tokens, dy, first_token,
           dtable);
}

void add_positions(Context& ctx, const Tensor& x, const Tensor& table, std::int64_t first_row,
                   std::int64_t length, std::int64_t first_position, const Tensor& y) {
  check_matrix("add_positions", "x", x);
  check_floating("add_positions", "y", y);
  check_shape("add_positions", "y", y, x.shape());
  check_matrix("add_positions", "table", table);
  check_shape("add_positions", "table", table, {table.shape()[0], x.shape()[1]});
  TRIREME_CHECK(length > 0 && first_row >= 0 && first_position >= 0 &&
                    first_position + std::min(length, first_row + x.shape()[0]) <= table.shape()[0],
                fmt::format("add_positions: {} positions from {} on, of a table of {}", length,
                            first_position, table.shape()[0]));
  dispatch(TRIREME_OP(add_positions), ctx, x, table, first_row, length, first_position, y);
}

void add_positions_backward(Context& ctx, const Tensor& dy, std::int64_t first_row,
                            std::int64_t length, const Tensor& dtable) {
  check_matrix("add_positions_backward", "dy", dy);
  check_rank("add_positions_backward", "dtable", dtable, 2);
  check_fp32("add_positions_backward", "dtable", dtable, {dtable.shape()[0], dy.shape()[1]});
  TRIREME_CHECK(length > 0 && first_row >= 0 &&
                    std::min(length, first_row + dy.shape()[0]) <= dtable.shape()[0],
                fmt::format("add_positions_backward: {} positions of a table of {}", length,
                            dtable.shape()[0]));
  dispatch(TRIREME_OP(add_positions_backward), ctx, dy, first_row, length, dtable);
}

void copy_rows(Context& ctx, const SampleRows& rows, const Tensor& x, const Tensor& y) {
  check_matrix("copy_rows", "x", x);
  check_matrix("copy_rows", "y", y);
  TRIREME_CHECK(x.raw() != y.raw(), "copy_rows: y may not be x");
  const std::int64_t columns = y.shape()[1];
  const std::int64_t x_length = rows.x_length == 0 ? x.shape()[0] : rows.x_length;
  const std::int64_t x_samples = rows.x_length == 0 ? 1 : rows.batch;
  check_shape("copy_rows", "x", x, {x_samples * x_length, columns});
  check_shape("copy_rows", "y", y, {rows.batch * rows.y_length, columns});
  TRIREME_CHECK(rows.count >= 0 && rows.x_first >= 0 && rows.x_first + rows.count <= x_length &&
                    rows.y_first >= 0 && rows.y_first + rows.count <= rows.y_length,
                fmt::format("copy_rows: {} rows from row {} of {} to row {} of {}", rows.count,
                            rows.x_first, x_length, rows.y_first, rows.y_length));
  const auto moved = static_cast<double>(rows.batch * rows.count * columns);
  const std::size_t bytes = size_of(x.dtype()) + size_of(y.dtype());
  dispatch(TRIREME_OP(copy_rows), {.bytes = moved * static_cast<double>(bytes)}, ctx, rows, x, y);
}

}  // namespace trireme::ops
