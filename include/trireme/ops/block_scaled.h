// Matrices in e4m3 with a scale for each block of 128 elements of a row, or of 128 x 128 elements,
// and their products: the blocks of "DeepSeek-V3 Technical Report" (2024), section 3.3. A scale
// follows from its block alone, so there is no history and no state.
#pragma once

#include "trireme/base/rounding.h"
#include "trireme/ops/context.h"

namespace trireme::ops {

inline constexpr std::int64_t kScaledSide = 128;

enum class ScaledBlocks {
  kRows,   // 1 x 128 elements: activations and gradients
  kTiles,  // 128 x 128 elements: weights
};

// A matrix (rows, columns), both multiples of kScaledSide: its elements are codes times scales.
// Undefined codes: no matrix. The scales lie as cuBLASLt wants them (VEC128_32F, BLK128x128_32F).
struct BlockScaled {
  ScaledBlocks blocks = ScaledBlocks::kRows;
  Tensor codes;  // (rows, columns) e4m3
  // fp32, of a block of each row (columns / 128, rows), or of tiles (rows / 128, columns / 128
  // rounded up to a multiple of 4), where what fills up a row is 0.
  Tensor scales;

  bool defined() const { return codes.defined(); }
  static Shape shape_of_scales(ScaledBlocks blocks, std::int64_t rows, std::int64_t columns) {
    if (blocks == ScaledBlocks::kRows) return {columns / kScaledSide, rows};
    return {rows / kScaledSide, rounded_up(columns / kScaledSide, 4)};
  }
};

// Whether a matrix of these extents has whole blocks.
inline bool has_whole_blocks(std::int64_t rows, std::int64_t columns) {
  return rows % kScaledSide == 0 && columns % kScaledSide == 0;
}

// Memory for such a matrix, with whole blocks.
BlockScaled allocate_scaled(Context& ctx, std::int64_t rows, std::int64_t columns,
                            ScaledBlocks blocks);

// Writes x (rows, columns) bf16 to `straight` (rows, columns) and, transposed, to `turned`
// (columns, rows), in one pass. Either may be undefined; both have the same kind of blocks. Those
// of rows differ between the two, since rows of the one are columns of the other; tiles are the
// same.
//
// The scale of a block is the smallest power of two, but at least 2^-60, by which no element is
// more than 448 of them; a code is the element divided by it, rounded as E4M3 does. So bf16 holds
// codes times scales exactly, and all devices give the same bits. Where an element of a block is
// not finite its scale is NaN, so that all its values are, and its codes are 0.
void scale_blocks(Context& ctx, const Tensor& x, const BlockScaled& straight,
                  const BlockScaled& turned);

// c (m, n) = a (m, k) * b (n, k)^T + bias (n) + beta * c. bias may be undefined; with beta 1 it is.
// c is bf16 or fp32. At most one of the two has tiles. Sums are in fp32; those of a GPU's tensor
// cores have fewer bits within a block of 128 terms.
void scaled_matmul(Context& ctx, const BlockScaled& a, const BlockScaled& b, const Tensor& bias,
                   float beta, const Tensor& c);

// Asks what multiplies matrices on this device for the three kinds of scaled_matmul: tiles in a, in
// b, in none. Throws CudaError where it has not all of them.
void check_scaled_products(Context& ctx);

}  // namespace trireme::ops
