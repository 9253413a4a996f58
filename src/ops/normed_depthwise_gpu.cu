// Depthwise convolutions by tiles with the work of the batch norms around them.
#include "ops/device_ops.h"
#include "ops/gpu/depthwise.h"

namespace trireme::ops::gpu {
namespace {

// `pairs` may be undefined: then nothing is summed up.
TileNorms tile_norms(Context& ctx, const BatchNorm& before, const DepthwiseTiles& tiles,
                     const Tensor& pairs, const Tensor& parts) {
  TRIREME_CHECK(tiles.groups <= kBlockCounters, "a tensor has too many columns for its sums");
  return {norm_of(before), device_data<float>(pairs), device_data<float>(parts),
          static_cast<unsigned*>(ctx.block_counters.raw())};
}

}  // namespace

void normed_depthwise(Context& ctx, const ConvolutionShape& shape, const BatchNorm& norm,
                      const Tensor& x, const Tensor& weight, const Tensor& y,
                      const Tensor& moments) {
  const DepthwiseTiles tiles = DepthwiseTiles::forward(shape);
  const Tensor parts = moments.defined() ? parts_of_tiles(ctx, tiles) : Tensor();
  depthwise_tiles(ctx, shape, x, weight, y, tile_norms(ctx, norm, tiles, moments, parts));
}

void normed_depthwise_backward(Context& ctx, const ConvolutionShape& shape, const BatchNorm& norm,
                               const Tensor& dy, const Tensor& x, const Tensor& weight,
                               const Tensor& dnormed, const Tensor& sums, const Tensor& dweight) {
  const DepthwiseTiles tiles = DepthwiseTiles::backward(shape);
  const Tensor taps = dweight.defined() ? parts_of_taps(ctx, shape) : Tensor();
  const Tensor parts = sums.defined() ? parts_of_tiles(ctx, tiles) : Tensor();
  depthwise_backward_tiles(ctx, shape, dy, x, weight, dnormed, taps,
                           tile_norms(ctx, norm, tiles, sums, parts));
  if (taps.defined()) add_taps(ctx, taps, dweight);
}

}  // namespace trireme::ops::gpu
