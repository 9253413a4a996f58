#include <algorithm>
#include <array>

#include "ops/cpu/parallel.h"
#include "ops/device_ops.h"
#include "ops/power_scale.h"

namespace trireme::ops::cpu {
namespace {

constexpr std::int64_t kSide = kScaledSide;
using Magnitudes = std::array<std::uint32_t, kSide>;
using Scales = std::array<PowerScale, kSide>;

// A tile of x: where it lies, and the number of its rows and columns of tiles before it.
struct Tile {
  const BFloat16* x;
  std::int64_t stride, row, column;

  const BFloat16* line(std::int64_t i) const { return x + i * stride; }
};

float times(BFloat16 value, float inverse) {
  return inverse == 0.0f ? 0.0f : static_cast<float>(value) * inverse;
}

// Where the tile's codes begin, and rows of them.
std::uint8_t* place(const BlockScaled& of, std::int64_t row, std::int64_t column) {
  return static_cast<std::uint8_t*>(of.codes.raw()) + row * kSide * of.codes.shape()[1] +
         column * kSide;
}

// scales[i] is that of row i.
void encode(const Tile& tile, const Scales& scales, const BlockScaled& straight) {
  std::uint8_t* to = place(straight, tile.row, tile.column);
  for (std::int64_t i = 0; i < kSide; ++i, to += straight.codes.shape()[1]) {
    const BFloat16* from = tile.line(i);
    const float inverse = scales[static_cast<std::size_t>(i)].inverse;
    for (std::int64_t j = 0; j < kSide; ++j) to[j] = E4M3(times(from[j], inverse)).bits;
  }
}

// scales[j] is that of column j.
void encode_turned(const Tile& tile, const Scales& scales, const BlockScaled& turned) {
  std::array<float, kSide> inverse{};
  for (std::size_t j = 0; j < kSide; ++j) inverse[j] = scales[j].inverse;
  std::array<std::array<std::uint8_t, kSide>, kSide> codes;
  for (std::size_t i = 0; i < kSide; ++i) {
    const BFloat16* from = tile.line(static_cast<std::int64_t>(i));
    for (std::size_t j = 0; j < kSide; ++j) codes[i][j] = E4M3(times(from[j], inverse[j])).bits;
  }
  std::uint8_t* to = place(turned, tile.column, tile.row);
  for (std::size_t j = 0; j < kSide; ++j, to += turned.codes.shape()[1]) {
    for (std::size_t i = 0; i < kSide; ++i) to[i] = codes[i][j];
  }
}

Scales scales_of(const Magnitudes& largest) {
  Scales scales;
  std::ranges::transform(largest, scales.begin(), power_scale);
  return scales;
}

// The scales of the tile's rows, of its blocks as they lie or turned.
void write_row_scales(const BlockScaled& of, std::int64_t row, std::int64_t column,
                      const Scales& scales) {
  float* to = of.scales.data<float>() + column * of.codes.shape()[0] + row * kSide;
  std::ranges::transform(scales, to, &PowerScale::scale);
}

// The scale of a tile. That of the last one in a row fills the row up.
void write_tile_scale(const BlockScaled& of, std::int64_t row, std::int64_t column, float scale) {
  const std::int64_t stride = of.scales.shape()[1];
  float* to = of.scales.data<float>() + row * stride;
  to[column] = scale;
  if (column + 1 == of.codes.shape()[1] / kSide) std::fill(to + column + 1, to + stride, 0.0f);
}

void scale_tile(const Tile& tile, const BlockScaled& straight, const BlockScaled& turned) {
  const bool tiles = (straight.defined() ? straight : turned).blocks == ScaledBlocks::kTiles;
  Magnitudes of_rows{}, of_columns{};
  for (std::size_t i = 0; i < kSide; ++i) {
    const BFloat16* from = tile.line(static_cast<std::int64_t>(i));
    for (std::size_t j = 0; j < kSide; ++j) {
      const std::uint32_t magnitude = bf16_magnitude(from[j].bits);
      of_rows[i] = std::max(of_rows[i], magnitude);
      of_columns[j] = std::max(of_columns[j], magnitude);
    }
  }
  if (tiles) {
    of_rows.fill(*std::ranges::max_element(of_rows));
    of_columns = of_rows;
  }
  const Scales rows = scales_of(of_rows), columns = scales_of(of_columns);
  if (straight.defined()) {
    encode(tile, rows, straight);
    if (tiles) {
      write_tile_scale(straight, tile.row, tile.column, rows.front().scale);
    } else {
      write_row_scales(straight, tile.row, tile.column, rows);
    }
  }
  if (turned.defined()) {
    encode_turned(tile, columns, turned);
    if (tiles) {
      write_tile_scale(turned, tile.column, tile.row, columns.front().scale);
    } else {
      write_row_scales(turned, tile.column, tile.row, columns);
    }
  }
}

}  // namespace

void scale_blocks(Context& ctx, const Tensor& x, const BlockScaled& straight,
                  const BlockScaled& turned) {
  const std::int64_t stride = x.shape()[1], across = stride / kSide;
  parallel_ranges(
      ctx, x.elements() / (kSide * kSide), 1, [&](std::int64_t begin, std::int64_t end) {
        for (std::int64_t number = begin; number < end; ++number) {
          const std::int64_t row = number / across, column = number % across;
          const BFloat16* first = x.data<BFloat16>() + row * kSide * stride + column * kSide;
          scale_tile({first, stride, row, column}, straight, turned);
        }
      });
}

}  // namespace trireme::ops::cpu
