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

// Two values of each column over all rows, made in one launch (column_pairs.h). A block of up to
// kThreads threads takes a part of the rows of a group of columns: `lines` threads for each of
// `lanes` chunks of kChunk columns. All this depends on the shape alone.
struct ColumnPairs {
  static constexpr std::int64_t kThreads = 512, kMostLanes = 32, kChunk = 8;
  static constexpr std::int64_t kMostBlocks = 256;  // two for each multiprocessor of a large GPU

  std::int64_t groups, lanes, lines, parts, per_part;

  static ColumnPairs of(std::int64_t rows, std::int64_t columns) {
    const std::int64_t chunks = blocks_for(columns, kChunk);
    const std::int64_t lanes = blocks_for(chunks, blocks_for(chunks, kMostLanes));
    const std::int64_t groups = blocks_for(chunks, lanes), lines = kThreads / lanes;
    const std::int64_t most = std::max<std::int64_t>(1, kMostBlocks / groups);
    const std::int64_t at_once = lines * 4;
    const std::int64_t per_part = blocks_for(blocks_for(rows, most), at_once) * at_once;
    return {groups, lanes, lines, blocks_for(rows, per_part), per_part};
  }
  // Columns with those that fill up the last group.
  std::int64_t width() const { return groups * lanes * kChunk; }
};
inline Tensor parts_of_column_pairs(Context& ctx, std::int64_t rows, std::int64_t columns) {
  const ColumnPairs pairs = ColumnPairs::of(rows, columns);
  return ctx.allocate({pairs.parts, 2, pairs.width()}, DType::kF32, MemoryUse::kWorkspace);
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

// A depthwise convolution of 3 x 3 by tiles: each is a rectangle of one picture, and a block goes
// through some tiles for the same channels. All this depends on the shape alone.
struct DepthwiseTiles {
  static constexpr std::int64_t kChunk = 8, kMostChannels = 64, kThreads = 224;
  static constexpr std::int64_t kMostBlocks = 512;

  int groups, channels;  // of a block: a multiple of kChunk
  int height, width;     // of a tile
  int down, across;      // tiles of a picture
  int positions;         // columns of a tile that a block takes at a time
  std::int64_t tiles, parts, per_part;

  static bool fit(const ConvolutionShape& s) {
    return s.depthwise() && s.kernel_height == 3 && s.kernel_width == 3 && s.stride <= 2;
  }
  // Tiles of the output.
  static DepthwiseTiles forward(const ConvolutionShape& s) {
    return of(s, s.out_height(), s.out_width());
  }
  // Tiles of the input, in squares of stride x stride pixels. The first pixel of square n is n x
  // stride - padding.
  static DepthwiseTiles backward(const ConvolutionShape& s) {
    return of(s, squares(s, s.height), squares(s, s.width));
  }
  static std::int64_t first_square(std::int64_t padding, std::int64_t stride) {
    return padding / stride;
  }

 private:
  static std::int64_t squares(const ConvolutionShape& s, std::int64_t pixels) {
    return (pixels - 1 + s.padding) / s.stride - first_square(s.padding, s.stride) + 1;
  }
  static DepthwiseTiles of(const ConvolutionShape& s, std::int64_t rows, std::int64_t columns) {
    const auto share = [](std::int64_t n, std::int64_t most) {
      return blocks_for(n, blocks_for(n, most));
    };
    const std::int64_t chunks = blocks_for(s.in_channels, kChunk);
    const std::int64_t of_block = share(chunks, kMostChannels / kChunk);
    const std::int64_t groups = blocks_for(chunks, of_block), lanes = of_block * kChunk / 2;
    const std::int64_t height = share(rows, 8), width = share(columns, 14 / s.stride);
    const std::int64_t down = blocks_for(rows, height), across = blocks_for(columns, width);
    const std::int64_t tiles = s.batch * down * across;
    const std::int64_t most = std::max<std::int64_t>(1, kMostBlocks / groups);
    const std::int64_t per_part = blocks_for(tiles, most);
    const auto whole = [](std::int64_t n) { return static_cast<int>(n); };
    return {whole(groups),
            whole(of_block * kChunk),
            whole(height),
            whole(width),
            whole(down),
            whole(across),
            whole(share(width, kThreads / lanes)),
            tiles,
            blocks_for(tiles, per_part),
            per_part};
  }
};

// The gradient of a depthwise convolution's weights: sums over the pixels, apart for each tap.
// (taps, parts, channels)
inline Tensor parts_of_taps(Context& ctx, const ConvolutionShape& shape) {
  const std::int64_t pixels = shape.out_pixels();
  const std::int64_t parts = DepthwiseTiles::fit(shape) ? DepthwiseTiles::backward(shape).parts
                                                        : blocks_for(pixels, rows_of_part(pixels));
  return ctx.allocate({shape.taps(), parts, shape.in_channels}, DType::kF32, MemoryUse::kWorkspace);
}

// Two values of each channel over the tiles, and the pixels of each part (tile_norms.h):
// (parts, 3, channels), with channels that fill up the last group.
inline Tensor parts_of_tiles(Context& ctx, const DepthwiseTiles& tiles) {
  return ctx.allocate({tiles.parts, 3, std::int64_t{tiles.groups} * tiles.channels}, DType::kF32,
                      MemoryUse::kWorkspace);
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
