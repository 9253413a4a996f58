#include "ops/device_ops.h"
#include "ops/gpu/reduce.h"

namespace trireme::ops::gpu {
namespace {

constexpr int kThreads = 256;

template <class T>
__global__ void __launch_bounds__(kThreads)
    embedding_kernel(const std::int32_t* tokens, View<T> table, std::int64_t first_token,
                     std::int64_t local, View<T> y, std::int64_t rows, std::int64_t columns,
                     bool vector) {
  const std::int64_t column = chunk_column();
  const std::int64_t left = columns - column;
  if (left <= 0) return;
  for_chunk_rows(rows, [&](std::int64_t row) {
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
  const std::int64_t column = chunk_column();
  const std::int64_t left = columns - column;
  if (left <= 0) return;
  for_chunk_rows(rows, [&](std::int64_t row) {
    const std::int64_t position = first_position + (first_row + row) % length;
    float values[kChunk], shift[kChunk];
    x.load(row * columns + column, left, vector, values);
    table.load(position * columns + column, left, vector, shift);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) values[i] += shift[i];
    y.store(row * columns + column, left, vector, values);
  });
}

// A thread adds up one chunk of one position, in the order of the rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    add_positions_backward_kernel(View<T> dy, std::int64_t first_row, std::int64_t length,
                                  float* dtable, std::int64_t rows, std::int64_t columns,
                                  bool vector) {
  const std::int64_t column = chunk_column();
  const std::int64_t left = columns - column;
  if (left <= 0) return;
  for_chunk_rows(length, [&](std::int64_t position) {
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

// The gradient of the table without atomics: a block owns kRange rows of the table and a stretch of
// columns, and looks for its tokens in tiles of the rows of dy. What a tile has of them is grouped
// by table row, in row order, and added up in registers. So each sum is in row order.
constexpr int kRange = 32;
constexpr int kScan = 128;  // threads, of a chunk of columns each
constexpr int kTokensOfThread = 8;
constexpr int kTile = kScan * kTokensOfThread;

struct Matches {
  int* row;    // in the tile
  int* table;  // row of the table, counted from the block's first
};

// The tile's tokens in the block's range, in row order; their number.
__device__ int find_matches(const std::int32_t* tokens, std::int64_t tile, std::int64_t rows,
                            std::int64_t first, std::int64_t count, const Matches& found) {
  TRIREME_SHARED(int, of_warp, kScan / 32);
  const int lane = static_cast<int>(threadIdx.x % 32), warp = static_cast<int>(threadIdx.x / 32);
  std::int64_t mine[kTokensOfThread];
  bool any = false;
#pragma unroll
  for (int k = 0; k < kTokensOfThread; ++k) {
    const std::int64_t row = tile + k * kScan + threadIdx.x;
    mine[k] = row < rows ? tokens[row] - first : -1;
    any = any || (0 <= mine[k] && mine[k] < count);
  }
  if (__syncthreads_or(any ? 1 : 0) == 0) return 0;
  int total = 0;
#pragma unroll
  for (int k = 0; k < kTokensOfThread; ++k) {
    const bool here = 0 <= mine[k] && mine[k] < count;
    const unsigned votes = __ballot_sync(kAllLanes, here ? 1 : 0);
    __syncthreads();
    if (lane == 0) of_warp[warp] = __popc(votes);
    __syncthreads();
    int place = total + __popc(votes & ((1u << lane) - 1u));
    for (int w = 0; w < kScan / 32; ++w) {
      if (w < warp) place += of_warp[w];
      total += of_warp[w];
    }
    if (!here) continue;
    found.row[place] = k * kScan + static_cast<int>(threadIdx.x);
    found.table[place] = static_cast<int>(mine[k]);
  }
  __syncthreads();
  return total;
}

// The same matches by table row, and in row order for each: a match's place is the number of those
// that come before it.
__device__ void group_matches(const Matches& found, int count, const Matches& grouped) {
  for (int m = static_cast<int>(threadIdx.x); m < count; m += kScan) {
    const int table = found.table[m];
    int place = 0;
    for (int n = 0; n < count; ++n) {
      place += found.table[n] < table || (found.table[n] == table && n < m) ? 1 : 0;
    }
    grouped.row[place] = found.row[m];
    grouped.table[place] = table;
  }
  __syncthreads();
}

template <class T>
__global__ void __launch_bounds__(kScan)
    embedding_backward_kernel(const std::int32_t* tokens, View<T> dy, std::int64_t first_token,
                              float* dtable, std::int64_t local, std::int64_t rows,
                              std::int64_t columns, bool vector) {
  TRIREME_SHARED(int, found_row, kTile);
  TRIREME_SHARED(int, found_table, kTile);
  TRIREME_SHARED(int, grouped_row, kTile);
  TRIREME_SHARED(int, grouped_table, kTile);
  const Matches found = {found_row, found_table}, grouped = {grouped_row, grouped_table};
  const std::int64_t first = static_cast<std::int64_t>(blockIdx.x) * kRange;
  const std::int64_t count = local - first < kRange ? local - first : kRange;
  const std::int64_t column =
      (static_cast<std::int64_t>(blockIdx.y) * kScan + threadIdx.x) * kChunk;
  const std::int64_t left = columns - column;
  for (std::int64_t tile = 0; tile < rows; tile += kTile) {
    // Its first barrier comes when all threads have read the lists of the tile before.
    const int matches = find_matches(tokens, tile, rows, first_token + first, count, found);
    if (matches == 0) continue;
    group_matches(found, matches, grouped);
    for (int m = 0; m < matches && left > 0;) {
      const int table = grouped.table[m];
      float* target = dtable + (first + table) * columns + column;
      float sums[kChunk];
      load_chunk(target, left, vector, sums);
#pragma unroll 4
      for (; m < matches && grouped.table[m] == table; ++m) {
        float values[kChunk];
        dy.load((tile + grouped.row[m]) * columns + column, left, vector, values);
#pragma unroll
        for (int i = 0; i < kChunk; ++i) sums[i] += values[i];
      }
      store_chunk(target, left, vector, sums);
    }
  }
}

}  // namespace

void embedding(Context& ctx, const Tensor& tokens, const Tensor& table, std::int64_t first_token,
               const Tensor& y) {
  const std::int64_t rows = y.shape()[0], columns = y.shape()[1];
  with_type({&table, &y}, [&](auto type) {
    using T = decltype(type);
    launch(embedding_kernel<T>, chunk_grid(rows, columns), chunk_block(), 0, ctx.stream,
           device_data<std::int32_t>(tokens), View<T>(table), first_token, table.shape()[0],
           View<T>(y), rows, columns, vectors_fit({&table, &y}, columns));
  });
}

void embedding_backward(Context& ctx, const Tensor& tokens, const Tensor& dy,
                        std::int64_t first_token, const Tensor& dtable) {
  const std::int64_t rows = dy.shape()[0], columns = dy.shape()[1], local = dtable.shape()[0];
  with_type({&dy}, [&](auto type) {
    using T = decltype(type);
    launch(embedding_backward_kernel<T>,
           dim3(extent(blocks_for(local, kRange)), extent(blocks_for(columns, kScan * kChunk))),
           kScan, 0, ctx.stream, device_data<std::int32_t>(tokens), View<T>(dy), first_token,
           device_data<float>(dtable), local, rows, columns, vectors_fit({&dy, &dtable}, columns));
  });
}

void add_positions(Context& ctx, const Tensor& x, const Tensor& table, std::int64_t first_row,
                   std::int64_t length, std::int64_t first_position, const Tensor& y) {
  const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
  with_type({&x, &table, &y}, [&](auto type) {
    using T = decltype(type);
    launch(add_positions_kernel<T>, chunk_grid(rows, columns), chunk_block(), 0, ctx.stream,
           View<T>(x), View<T>(table), first_row, length, first_position, View<T>(y), rows, columns,
           vectors_fit({&x, &table, &y}, columns));
  });
}

void add_positions_backward(Context& ctx, const Tensor& dy, std::int64_t first_row,
                            std::int64_t length, const Tensor& dtable) {
  const std::int64_t rows = dy.shape()[0], columns = dy.shape()[1];
  with_type({&dy}, [&](auto type) {
    using T = decltype(type);
    launch(add_positions_backward_kernel<T>, chunk_grid(length, columns), chunk_block(), 0,
           ctx.stream, View<T>(dy), first_row, length, device_data<float>(dtable), rows, columns,
           vectors_fit({&dy, &dtable}, columns));
  });
}

}  // namespace trireme::ops::gpu
