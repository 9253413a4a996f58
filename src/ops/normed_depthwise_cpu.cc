#include "ops/convolution_shape.h"
#include "ops/device_ops.h"

namespace trireme::ops::cpu {
namespace {

Tensor normed(Context& ctx, const BatchNorm& norm, const Tensor& x) {
  if (!norm.moments.defined()) return x;
  const Tensor made = ctx.allocate(x.shape(), x.dtype(), MemoryUse::kWorkspace);
  cpu::batch_norm(ctx, norm, pixel_rows(x), Tensor(), pixel_rows(made));
  return made;
}

}  // namespace

// One operation after the other.
void normed_depthwise(Context& ctx, const ConvolutionShape& shape, const BatchNorm& norm,
                      const Tensor& x, const Tensor& weight, const Tensor& y,
                      const Tensor& moments) {
  depthwise(ctx, shape, normed(ctx, norm, x), weight, y);
  if (moments.defined()) cpu::batch_moments(ctx, pixel_rows(y), moments);
}

void normed_depthwise_backward(Context& ctx, const ConvolutionShape& shape, const BatchNorm& norm,
                               const Tensor& dy, const Tensor& x, const Tensor& weight,
                               const Tensor& dnormed, const Tensor& sums, const Tensor& dweight) {
  if (dweight.defined()) {
    depthwise_backward_weight(ctx, shape, dy, normed(ctx, norm, x), dweight);
  }
  if (!dnormed.defined()) return;
  depthwise_backward_input(ctx, shape, dy, weight, dnormed);
  cpu::batch_norm_backward_sums(ctx, norm, pixel_rows(dnormed), pixel_rows(x), Tensor(), sums);
}

}  // namespace trireme::ops::cpu
