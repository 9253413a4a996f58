#include "trireme/ops/normed_depthwise.h"

#include <string>

#include "ops/check.h"
#include "ops/convolution_shape.h"
#include "ops/device_ops.h"
#include "ops/gpu/workspace.h"

namespace trireme::ops {
namespace {

void check_call(std::string_view op, const ConvolutionShape& shape, const BatchNorm& norm,
                const Tensor& x, const Tensor& weight) {
  check_shape_of(op, shape);
  TRIREME_CHECK(gpu::DepthwiseTiles::fit(shape),
                std::string(op) +
                    ": a convolution that is not depthwise, of 3 x 3, or of a stride "
                    "up to 2");
  check_typed(op, "x", x, shape.input(), x);
  if (weight.defined()) check_typed(op, "weight", weight, shape.weight(), x);
  if (norm.moments.defined()) check_norm(op, norm, pixel_rows(x));
}

}  // namespace

bool depthwise_takes_norms(const Context& ctx, const ConvolutionShape& shape) {
  return !on_cpu(ctx) && gpu::DepthwiseTiles::fit(shape);
}

void normed_depthwise(Context& ctx, const ConvolutionShape& shape, const BatchNorm& norm,
                      const Tensor& x, const Tensor& weight, const Tensor& y,
                      const Tensor& moments) {
  constexpr std::string_view kName = "normed_depthwise";
  check_call(kName, shape, norm, x, weight);
  TRIREME_CHECK(weight.defined(), "normed_depthwise: no weight");
  check_typed(kName, "y", y, shape.output(), x);
  if (moments.defined()) {
    check_fp32(kName, "moments", moments, {2, shape.out_channels});
    if (on_dry_gpu(ctx)) gpu::parts_of_tiles(ctx, gpu::DepthwiseTiles::forward(shape));
  }
  dispatch(TRIREME_OP(normed_depthwise), {flops_of(shape)}, ctx, shape, norm, x, weight, y,
           moments);
}

void normed_depthwise_backward(Context& ctx, const ConvolutionShape& shape, const BatchNorm& norm,
                               const Tensor& dy, const Tensor& x, const Tensor& weight,
                               const Tensor& dnormed, const Tensor& sums, const Tensor& dweight) {
  constexpr std::string_view kName = "normed_depthwise_backward";
  check_call(kName, shape, norm, x, weight);
  TRIREME_CHECK(norm.moments.defined() && dnormed.defined() == sums.defined() &&
                    (dnormed.defined() ? weight : dweight).defined(),
                "normed_depthwise_backward: no norm, or not what some choice of gradients needs");
  check_typed(kName, "dy", dy, shape.output(), x);
  const bool dry_gpu = on_dry_gpu(ctx);
  Tensor taps, pairs;
  if (dweight.defined()) {
    check_fp32(kName, "dweight", dweight, shape.weight());
    if (dry_gpu) taps = gpu::parts_of_taps(ctx, shape);
  }
  if (dnormed.defined()) {
    check_typed(kName, "dnormed", dnormed, shape.input(), x);
    check_fp32(kName, "sums", sums, {2, shape.in_channels});
    if (dry_gpu) pairs = gpu::parts_of_tiles(ctx, gpu::DepthwiseTiles::backward(shape));
  }
  const double gradients = dnormed.defined() && dweight.defined() ? 2.0 : 1.0;
  dispatch(TRIREME_OP(normed_depthwise_backward), {gradients * flops_of(shape)}, ctx, shape, norm,
           dy, x, weight, dnormed, sums, dweight);
}

}  // namespace trireme::ops
