#include "ops/device_ops.h"
#include "ops/gpu/row_sort.h"

namespace trireme::ops::gpu {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    embedding_kernel(const std::int32_t* tokens, View<T> table, std::int64_t first_token,
                     std::int64_t local, View<T> y, std::int64_t rows, std::int64_t columns,
                     bool vector) {
  for_chunks(rows, columns, [&](std::int64_t row, std::int64_t column, std::int64_t left) {
    const std::int64_t from = tokens[row] - first_token;
    float values[kChunk] = {};
    if (0 <= from && from < local) table.load(from * columns + column, left, vector, values);
    y.store(row * columns + column, left, vector, values);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    add_positions_kernel(View<T> x, View<T> table, std::int64_t first_row, std::int64_t length,
                         std::int64_t first_position, View<T> y, std::int64_t rows,
                         std::int64_t columns, bool vector) {
  for_chunks(rows, columns, [&](std::int64_t row, std::int64_t column, std::int64_t left) {
    const std::int64_t position = first_position + (first_row + row) % length;
    float values[kChunk], shift[kChunk];
    x.load(row * columns + column, left, vector, values);
    table.load(position * columns + column, left, vector, shift);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) values[i] += shift[i];
    y.store(row * columns + column, left, vector, values);
  });
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    copy_rows_kernel(SampleRows rows, View<T> x, View<T> y, std::int64_t columns, bool vector) {
  for_chunks(rows.batch * rows.count, columns,
             [&](std::int64_t i, std::int64_t column, std::int64_t left) {
               const std::int64_t sample = i / rows.count, row = i % rows.count;
               const std::int64_t from = sample * rows.x_length + rows.x_first + row;
               const std::int64_t to = sample * rows.y_length + rows.y_first + row;
               float values[kChunk];
               x.load(from * columns + column, left, vector, values);
               y.store(to * columns + column, left, vector, values);
             });
}

// A thread adds up one chunk of one position, in the order of the rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_positions_backward_kernel(View<T> dy, std::int64_t first_row, std::int64_t length,
                                  float* dtable, std::int64_t rows, std::int64_t columns,
                                  bool vector) {
  for_chunks(length, columns, [&](std::int64_t position, std::int64_t column, std::int64_t left) {
    const std::int64_t offset = first_row % length;
    const std::int64_t first = position >= offset ? position - offset : position - offset + length;
    if (first >= rows) return;
    float sums[kChunk];
    load_chunk(dtable + position * columns + column, left, vector, sums);
#pragma unroll 4
    for (std::int64_t row = first; row < rows; row += length) {
      float values[kChunk];
      dy.load(row * columns + column, left, vector, values);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) sums[i] += values[i];
    }
    store_chunk(dtable + position * columns + column, left, vector, sums);
  });
}

// The gradient of the table without atomics. The rows of dy are sorted by token and divided into
// pieces of kPiece rows, wherever runs of equal tokens begin and end. A warp sums the part of each
// run that is in its piece. If other pieces share the run, the sum goes to `parts`, and a second
// kernel adds up the parts. So many warps work on a very frequent token, and the order of each sum
// depends on the tokens alone.
constexpr int kRowsLoaded = 4;  // at a time

// Tokens that are not in the table get the key `local`, so they come last.
struct TokenRows {
  const std::int32_t* tokens;
  std::int64_t first_token, local;
  __device__ KeyedRow operator()(std::int64_t row) const {
    const std::int64_t from = tokens[row] - first_token;
    return keyed_row(0 <= from && from < local ? from : local, row);
  }
};

// The tokens of the first and last run of a piece, if neighbouring pieces share these runs.
struct SharedRuns {
  std::int64_t before, after;  // their tokens; -1: not shared
};
__device__ inline SharedRuns shared_runs(const KeyedRow* sorted, std::int64_t begin,
                                         std::int64_t end, std::int64_t rows) {
  return {begin > 0 ? key_of(sorted[begin - 1]) : -1, end < rows ? key_of(sorted[end]) : -1};
}

// parts (2, pieces, columns): the sums of the run that continues from the piece before, and of the
// run that begins in this piece and continues in the next.
template <class T>
__global__ void __launch_bounds__(kThreads)
    embedding_backward_kernel(const KeyedRow* sorted, View<T> dy, float* dtable, std::int64_t local,
                              std::int64_t rows, std::int64_t columns, float* parts, bool vector) {
  const std::int64_t pieces = (rows + kPiece - 1) / kPiece;
  for_chunks(pieces, columns, [&](std::int64_t piece, std::int64_t column, std::int64_t left) {
    const std::int64_t begin = piece * kPiece;
    const std::int64_t end = begin + kPiece < rows ? begin + kPiece : rows;
    const SharedRuns shared = shared_runs(sorted, begin, end, rows);
    std::int64_t token = key_of(sorted[begin]);
    float sums[kChunk] = {};
    const auto finish_run = [&] {
      if (token == local) return;
      if (token == shared.before || token == shared.after) {
        const std::int64_t part = token == shared.before ? piece : pieces + piece;
        store_chunk(parts + part * columns + column, left, vector, sums);
        return;
      }
      float* const target = dtable + token * columns + column;
      float values[kChunk];
      load_chunk(target, left, vector, values);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) values[i] += sums[i];
      store_chunk(target, left, vector, values);
    };
    for (std::int64_t first = begin; first < end; first += kRowsLoaded) {
      std::int64_t tokens[kRowsLoaded];
      float values[kRowsLoaded][kChunk];
#pragma unroll
      for (int r = 0; r < kRowsLoaded; ++r) {
        const KeyedRow item = first + r < end ? sorted[first + r] : keyed_row(token, 0);
        tokens[r] = key_of(item);
        const bool counts = first + r < end && tokens[r] != local;
        dy.load(row_of(item) * columns + column, counts ? left : 0, vector, values[r]);
      }
#pragma unroll
      for (int r = 0; r < kRowsLoaded; ++r) {
        if (first + r >= end) break;
        if (tokens[r] != token) {
          finish_run();
          token = tokens[r];
#pragma unroll
          for (float& sum : sums) sum = 0.0f;
        }
#pragma unroll
        for (int i = 0; i < kChunk; ++i) sums[i] += values[r][i];
      }
    }
    finish_run();
  });
}

// The number of consecutive pieces from `begin` on that begin with `token`.
__device__ inline std::int64_t pieces_of_run(const KeyedRow* sorted, std::int64_t token,
                                             std::int64_t begin, std::int64_t pieces) {
  std::int64_t low = begin, high = pieces;  // the first piece that does not is in [low, high]
  while (low < high) {
    const std::int64_t middle = (low + high) / 2;
    if (key_of(sorted[middle * kPiece]) == token) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  return low - begin;
}

// Adds the parts of a run that begins in a piece and continues, in two levels, as add_parts does.
__global__ void __launch_bounds__(kThreads)
    add_shared_runs_kernel(const KeyedRow* sorted, float* dtable, std::int64_t local,
                           std::int64_t rows, std::int64_t columns, const float* parts) {
  const std::int64_t piece = blockIdx.x, pieces = gridDim.x;
  const std::int64_t begin = piece * kPiece, end = begin + kPiece;
  if (end >= rows) return;
  const SharedRuns shared = shared_runs(sorted, begin, end, rows);
  const std::int64_t token = key_of(sorted[end - 1]);
  if (token != shared.after || token == shared.before || token == local) return;
  const std::int64_t count = pieces_of_run(sorted, token, piece + 1, pieces);
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.y) * 32 + threadIdx.x;
  const float others = sum_of_parts(parts + (piece + 1) * columns, count, columns, column);
  if (threadIdx.y != 0 || column >= columns) return;
  dtable[token * columns + column] += parts[(pieces + piece) * columns + column] + others;
}

}  // namespace

void embedding(Context& ctx, const Tensor& tokens, const Tensor& table, std::int64_t first_token,
               const Tensor& y) {
  const std::int64_t rows = y.shape()[0], columns = y.shape()[1];
  with_type({&table, &y}, [&](auto type) {
    using T = decltype(type);
    launch(embedding_kernel<T>, chunk_grid(rows, columns), chunk_block(columns), 0, ctx.stream,
           device_data<std::int32_t>(tokens), View<T>(table), first_token, table.shape()[0],
           View<T>(y), rows, columns, vectors_fit({&table, &y}, columns));
  });
}

void embedding_backward(Context& ctx, const Tensor& tokens, const Tensor& dy,
                        std::int64_t first_token, const Tensor& dtable) {
  const std::int64_t rows = dy.shape()[0], columns = dy.shape()[1], local = dtable.shape()[0];
  const Tensor sorted =
      sort_rows(ctx, TokenRows{device_data<std::int32_t>(tokens), first_token, local}, rows, local);
  const auto* items = device_data<KeyedRow>(sorted);
  const std::int64_t pieces = blocks_for(rows, kPiece);
  const Tensor parts = parts_of_runs(ctx, rows, columns);
  with_type({&dy}, [&](auto type) {
    using T = decltype(type);
    launch(embedding_backward_kernel<T>, chunk_grid(pieces, columns), chunk_block(columns), 0,
           ctx.stream, items, View<T>(dy), device_data<float>(dtable), local, rows, columns,
           device_data<float>(parts), vectors_fit({&dy, &dtable, &parts}, columns));
  });
  launch(add_shared_runs_kernel, dim3(extent(pieces), extent(blocks_for(columns, 32))),
         dim3(32, kRowsAtOnce), 0, ctx.stream, items, device_data<float>(dtable), local, rows,
         columns, device_data<float>(parts));
}

void add_positions(Context& ctx, const Tensor& x, const Tensor& table, std::int64_t first_row,
                   std::int64_t length, std::int64_t first_position, const Tensor& y) {
  const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
  with_type({&x, &table, &y}, [&](auto type) {
    using T = decltype(type);
    launch(add_positions_kernel<T>, chunk_grid(rows, columns), chunk_block(columns), 0, ctx.stream,
           View<T>(x), View<T>(table), first_row, length, first_position, View<T>(y), rows, columns,
           vectors_fit({&x, &table, &y}, columns));
  });
}

void add_positions_backward(Context& ctx, const Tensor& dy, std::int64_t first_row,
                            std::int64_t length, const Tensor& dtable) {
  const std::int64_t rows = dy.shape()[0], columns = dy.shape()[1];
  with_type({&dy}, [&](auto type) {
    using T = decltype(type);
    launch(add_positions_backward_kernel<T>, chunk_grid(length, columns), chunk_block(columns), 0,
           ctx.stream, View<T>(dy), first_row, length, device_data<float>(dtable), rows, columns,
           vectors_fit({&dy, &dtable}, columns));
  });
}

void copy_rows(Context& ctx, const SampleRows& rows, const Tensor& x, const Tensor& y) {
  const std::int64_t count = rows.batch * rows.count, columns = y.shape()[1];
  with_type({&x, &y}, [&](auto type) {
    using T = decltype(type);
    launch(copy_rows_kernel<T>, chunk_grid(count, columns), chunk_block(columns), 0, ctx.stream,
           rows, View<T>(x), View<T>(y), columns, vectors_fit({&x, &y}, columns));
  });
}

}  // namespace trireme::ops::gpu
