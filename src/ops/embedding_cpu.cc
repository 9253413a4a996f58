#include <algorithm>
#include <cstring>

#include "ops/cpu/parallel.h"
#include "ops/cpu/staging.h"
#include "ops/device_ops.h"

namespace trireme::ops::cpu {
namespace {

// Adds each row of dy to row target(row) of dtable, or to none if that is negative. Threads divide
// the columns, so each sum is in row order with any number of threads.
template <class Target>
void scatter_rows(Context& ctx, const Tensor& dy, const Tensor& dtable, const Target& target) {
  const std::int64_t columns = dy.shape()[1];
  constexpr std::int64_t kColumns = 128;
  parallel_ranges(ctx, columns, kColumns, [&](std::int64_t begin, std::int64_t end) {
    Stage stage;
    for (std::int64_t row = 0; row < dy.shape()[0]; ++row) {
      const std::int64_t to = target(row);
      if (to < 0) continue;
      float* sum = dtable.data<float>() + to * columns + begin;
      const float* from = read_fp32(dy, row * columns + begin, end - begin, stage.values);
      kernels().elementwise.add(sum, from, sum, end - begin);
    }
  });
}

}  // namespace

void embedding(Context& ctx, const Tensor& tokens, const Tensor& table, std::int64_t first_token,
               const Tensor& y) {
  const std::int64_t columns = y.shape()[1];
  const std::int64_t local = table.shape()[0];
  const auto* numbers = tokens.data<std::int32_t>();
  parallel_ranges(
      ctx, y.shape()[0], row_grain(columns), [&](std::int64_t first, std::int64_t last) {
        Stage in;
        for (std::int64_t row = first; row < last; ++row) {
          const std::int64_t from = numbers[row] - first_token;
          for (std::int64_t column = 0; column < columns; column += kStageElements) {
            const std::int64_t n = std::min(kStageElements, columns - column);
            const std::int64_t at = row * columns + column;
            Stage out;
            float* to = write_place(y, at, out.values);
            if (0 <= from && from < local) {
              std::copy_n(read_fp32(table, from * columns + column, n, in.values), n, to);
            } else {
              std::fill_n(to, n, 0.0f);
            }
            write_back(y, at, n, to);
          }
        }
      });
}

void embedding_backward(Context& ctx, const Tensor& tokens, const Tensor& dy,
                        std::int64_t first_token, const Tensor& dtable) {
  const std::int64_t local = dtable.shape()[0];
  const auto* numbers = tokens.data<std::int32_t>();
  scatter_rows(ctx, dy, dtable, [&](std::int64_t row) {
    const std::int64_t to = numbers[row] - first_token;
    return to < local ? to : -1;
  });
}

void add_positions(Context& ctx, const Tensor& x, const Tensor& table, std::int64_t first_row,
                   std::int64_t length, std::int64_t first_position, const Tensor& y) {
  const std::int64_t columns = x.shape()[1];
  parallel_ranges(
      ctx, x.shape()[0], row_grain(columns), [&](std::int64_t first, std::int64_t last) {
        Stage in_x, in_table, out;
        for (std::int64_t row = first; row < last; ++row) {
          const std::int64_t position = first_position + (first_row + row) % length;
          for (std::int64_t column = 0; column < columns; column += kStageElements) {
            const std::int64_t n = std::min(kStageElements, columns - column);
            const std::int64_t at = row * columns + column;
            const float* a = read_fp32(x, at, n, in_x.values);
            const float* b = read_fp32(table, position * columns + column, n, in_table.values);
            float* to = write_place(y, at, out.values);
            kernels().elementwise.add(a, b, to, n);
            write_back(y, at, n, to);
          }
        }
      });
}

void add_positions_backward(Context& ctx, const Tensor& dy, std::int64_t first_row,
                            std::int64_t length, const Tensor& dtable) {
  scatter_rows(ctx, dy, dtable, [&](std::int64_t row) { return (first_row + row) % length; });
}

void copy_rows(Context& ctx, const SampleRows& rows, const Tensor& x, const Tensor& y) {
  const std::int64_t columns = y.shape()[1];
  parallel_ranges(
      ctx, rows.batch * rows.count, row_grain(columns), [&](std::int64_t first, std::int64_t last) {
        Stage in, out;
        for (std::int64_t i = first; i < last; ++i) {
          const std::int64_t sample = i / rows.count, row = i % rows.count;
          const std::int64_t from = (sample * rows.x_length + rows.x_first + row) * columns;
          const std::int64_t at = (sample * rows.y_length + rows.y_first + row) * columns;
          for (std::int64_t column = 0; column < columns; column += kStageElements) {
            const std::int64_t n = std::min(kStageElements, columns - column);
            float* to = write_place(y, at + column, out.values);
            std::copy_n(read_fp32(x, from + column, n, in.values), n, to);
            write_back(y, at + column, n, to);
          }
        }
      });
}

}  // namespace trireme::ops::cpu
