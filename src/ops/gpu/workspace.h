// The memory that operations on a GPU need for themselves. Plain C++, because a dry context asks
// for the same memory as the kernels' files do.
#pragma once

#include <algorithm>
#include <bit>
#include <initializer_list>

#include "trireme/base/exact_sum.h"
#include "trireme/ops/attention.h"
#include "trireme/ops/convolution.h"

namespace trireme::ops::gpu {

inline std::int64_t blocks_for(std::int64_t work, std::int64_t per_block) {
  return (work + per_block - 1) / per_block;
}

// Sums over rows take two steps: each block sums a part of the rows for 256 columns, then the parts
// are added in order. The number of rows per part depends on the number of rows alone.
inline std::int64_t rows_of_part(std::int64_t rows) {
  constexpr std::int64_t kFewest = 64, kMostParts = 256;
  const std::int64_t share = blocks_for(rows, kMostParts);
  return share > kFewest ? share : kFewest;
}
// (sums, parts, columns)
inline Tensor parts_of_row_sums(Context& ctx, int sums, std::int64_t rows, std::int64_t columns) {
  return ctx.allocate({sums, blocks_for(rows, rows_of_part(rows)), columns}, DType::kF32,
                      MemoryUse::kWorkspace);
}

inline Tensor sums_of_columns(Context& ctx, std::int64_t columns) {
  return ctx.allocate({columns}, DType::kF32, MemoryUse::kWorkspace);
}

// A sort by digits of eight bits: the counts of each digit in each tile of rows, and where a pass
// puts the rows.
inline constexpr int kDigits = 256;
inline constexpr int kSortTile = kDigits * 8;  // rows of a block
inline Tensor counts_of_sort(Context& ctx, std::int64_t rows) {
  return ctx.allocate({blocks_for(rows, kSortTile), kDigits}, DType::kI32, MemoryUse::kWorkspace);
}
inline Tensor rows_of_sort(Context& ctx, std::int64_t rows) {
  return ctx.allocate({rows}, DType::kI64, MemoryUse::kWorkspace);
}
inline int bits_of_sort(std::int64_t largest) {
  return static_cast<int>(std::bit_width(static_cast<std::uint64_t>(largest)));
}

// The embedding's gradient: sums of runs of equal tokens at both ends of each piece of the sorted
// rows.
inline constexpr int kPiece = 64;
inline Tensor parts_of_runs(Context& ctx, std::int64_t rows, std::int64_t columns) {
  return ctx.allocate({2, blocks_for(rows, kPiece), columns}, DType::kF32, MemoryUse::kWorkspace);
}

// Sums of squares: those of units of elements, and the exact sums of shares of these. A kernel
// takes kSquaresAtOnce of a call's parts.
inline constexpr int kSquaresAtOnce = 120;
inline Tensor sums_of_units(Context& ctx, std::int64_t units) {
  return ctx.allocate({units}, DType::kF64, MemoryUse::kWorkspace);
}
inline std::int64_t shares_of_units(std::int64_t units) {
  constexpr std::int64_t kUnitsOfShare = 96, kMostShares = 512;
  return std::min(blocks_for(units, kUnitsOfShare), kMostShares);
}
inline Tensor limbs_of_shares(Context& ctx, std::int64_t units) {
  return ctx.allocate({shares_of_units(units), kExactLimbs}, DType::kI64, MemoryUse::kWorkspace);
}

// Whether tensor cores compute attention of this type where no library does; head sizes up to 128
// fit into their registers, in rows of 16 bytes. Affects the bits of results.
inline bool on_tensor_cores(const AttentionShape& shape, DType dtype) {
  return dtype != DType::kF32 && shape.head_size % 8 == 0 && shape.head_size <= 128;
}
inline bool of_one_type(std::initializer_list<const Tensor*> tensors) {
  return std::ranges::all_of(
      tensors, [&](const Tensor* x) { return x->dtype() == (*tensors.begin())->dtype(); });
}
// The keys that each so many queries see: four numbers. (batch, spans, 4)
inline constexpr int kRowsOfSpan = 32;
inline Tensor spans_of_attention(Context& ctx, const AttentionShape& shape) {
  return ctx.allocate({shape.batch, blocks_for(shape.length, kRowsOfSpan), 4}, DType::kI32,
                      MemoryUse::kWorkspace);
}
inline Tensor deltas_of_attention(Context& ctx, const AttentionShape& shape) {
  return ctx.allocate({shape.batch * shape.heads * shape.length}, DType::kF32,
                      MemoryUse::kWorkspace);
}

// The gradient of a depthwise convolution's weights: sums over the pixels of the output, apart for
// each tap. (taps, parts, channels)
inline Tensor parts_of_taps(Context& ctx, const ConvolutionShape& shape) {
  const std::int64_t pixels = shape.out_pixels();
  return ctx.allocate({shape.taps(), blocks_for(pixels, rows_of_part(pixels)), shape.in_channels},
                      DType::kF32, MemoryUse::kWorkspace);
}

// What a classification keeps: the loss of each row, its largest logit and its sum of exponentials.
inline Tensor losses_of_rows(Context& ctx, std::int64_t rows) {
  return ctx.allocate({3, rows}, DType::kF64, MemoryUse::kWorkspace);
}
inline Tensor ranks_of_rows(Context& ctx, std::int64_t rows) {
  return ctx.allocate({rows}, DType::kI32, MemoryUse::kWorkspace);
}

// Cosine and sine of each position and pair of channels.
inline Tensor table_of_rotary(Context& ctx, const AttentionShape& shape, const Rotation& rotation) {
  const auto pairs = static_cast<std::int64_t>(rotation.frequencies.size());
  return ctx.allocate({2, shape.length, pairs}, DType::kF32, MemoryUse::kWorkspace);
}

// What embedding_backward needs, one thing after the other. `largest`: the largest key of the sort.
inline void ask_for_embedding_backward(Context& ctx, std::int64_t rows, std::int64_t columns,
                                       std::int64_t largest) {
  Tensor sorted;
  {
    const Tensor counts = counts_of_sort(ctx, rows);
    sorted = rows_of_sort(ctx, rows);
    for (int bit = 8; bit < bits_of_sort(largest); bit += 8) {
      const Tensor to = rows_of_sort(ctx, rows);
      sorted = to;
    }
  }
  parts_of_runs(ctx, rows, columns);
}

}  // namespace trireme::ops::gpu
