#include "trireme/ops/block_scaled.h"

#include <fmt/format.h>

#include "ops/check.h"
#include "ops/device_ops.h"

namespace trireme::ops {
namespace {

double bytes_of_matrix(const BlockScaled& of) {
  return bytes_of(of.codes) + bytes_of(of.scales);
}

}  // namespace

BlockScaled allocate_scaled(Context& ctx, std::int64_t rows, std::int64_t columns,
                            ScaledBlocks blocks) {
  TRIREME_CHECK(has_whole_blocks(rows, columns),
                fmt::format("({}, {}) has no whole blocks of {}", rows, columns, kScaledSide));
  return {blocks, ctx.allocate({rows, columns}, DType::kE4M3),
          ctx.allocate(BlockScaled::shape_of_scales(blocks, rows, columns), DType::kF32)};
}

void scale_blocks(Context& ctx, const Tensor& x, const BlockScaled& straight,
                  const BlockScaled& turned) {
  check_rank("scale_blocks", "x", x, 2);
  check_dtype("scale_blocks", "x", x, {DType::kBF16});
  const std::int64_t rows = x.shape()[0], columns = x.shape()[1];
  TRIREME_CHECK(has_whole_blocks(rows, columns),
                fmt::format("scale_blocks: x is {}, without whole blocks of {}",
                            x.shape().to_string(), kScaledSide));
  if (straight.defined()) {
    check_scaled("scale_blocks", "straight", straight);
    check_shape("scale_blocks", "straight", straight.codes, {rows, columns});
  }
  if (turned.defined()) {
    check_scaled("scale_blocks", "turned", turned);
    check_shape("scale_blocks", "turned", turned.codes, {columns, rows});
  }
  if (straight.defined() && turned.defined()) {
    TRIREME_CHECK(straight.blocks == turned.blocks, "scale_blocks: two kinds of blocks");
  }
  if (x.elements() == 0 || (!straight.defined() && !turned.defined())) return;
  const Cost cost{.bytes = bytes_of(x) + bytes_of_matrix(straight) + bytes_of_matrix(turned)};
  dispatch(TRIREME_OP(scale_blocks), cost, ctx, x, straight, turned);
}

}  // namespace trireme::ops
