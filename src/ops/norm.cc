#include "trireme/ops/norm.h"

#include "trireme/ops/elementwise.h"

#include "ops/check.h"
#include "ops/device_ops.h"
#include "ops/gpu/workspace.h"

namespace trireme::ops {
namespace {

// Checks x, and a tensor y of x's shape.
void check_rows(std::string_view op, const Tensor& x, std::string_view name, const Tensor& y) {
  check_floating(op, "x", x);
  check_rank(op, "x", x, 2);
  TRIREME_CHECK(x.shape()[1] > 0, std::string(op) + ": x has no columns");
  check_floating(op, name, y);
  check_shape(op, name, y, x.shape());
}

void check_weight(std::string_view op, std::string_view name, const Tensor& weight,
                  const Tensor& x) {
  check_floating(op, name, weight);
  check_shape(op, name, weight, {x.shape()[1]});
}

// mean is undefined for RMS norm.
void check_backward(std::string_view op, const Tensor& dy, const Tensor& x, const Tensor& mean,
                    const Tensor& rstd) {
  check_rows(op, x, "dy", dy);
  if (mean.defined()) check_fp32(op, "mean", mean, {x.shape()[0]});
  check_fp32(op, "rstd", rstd, {x.shape()[0]});
}

void check_input_gradient(std::string_view op, const Tensor& x, const Tensor& weight,
                          const Tensor& residual, const Tensor& dx) {
  if (residual.defined()) check_rows(op, x, "residual", residual);
  check_rows(op, x, "dx", dx);
  check_weight(op, "weight", weight, x);
}

void check_weight_gradients(std::string_view op, const Tensor& x, const Tensor& dweight,
                            const Tensor& dbias) {
  check_fp32(op, "dweight", dweight, {x.shape()[1]});
  if (dbias.defined()) check_fp32(op, "dbias", dbias, {x.shape()[1]});
}

// The weights' gradient, or memory for one that nobody wants: one pass makes it with the bias's.
Tensor weight_gradient(Context& ctx, const Tensor& x, const Tensor& dweight) {
  if (dweight.defined()) return dweight;
  const Tensor unwanted = ctx.allocate({x.shape()[1]}, DType::kF32, MemoryUse::kWorkspace);
  fill(ctx, unwanted, 0.0f);
  return unwanted;
}

}  // namespace

void layer_norm(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                float epsilon, const Tensor& y, const Tensor& mean, const Tensor& rstd) {
  check_rows("layer_norm", x, "y", y);
  check_weight("layer_norm", "weight", weight, x);
  if (bias.defined()) check_weight("layer_norm", "bias", bias, x);
  check_fp32("layer_norm", "mean", mean, {x.shape()[0]});
  check_fp32("layer_norm", "rstd", rstd, {x.shape()[0]});
  dispatch(TRIREME_OP(layer_norm), ctx, x, weight, bias, epsilon, y, mean, rstd);
}

void add_layer_norm(Context& ctx, const Tensor& x, const Tensor& branch, const Tensor& weight,
                    const Tensor& bias, float epsilon, const Tensor& sum, const Tensor& y,
                    const Tensor& mean, const Tensor& rstd) {
  check_rows("add_layer_norm", x, "branch", branch);
  check_rows("add_layer_norm", x, "sum", sum);
  check_rows("add_layer_norm", x, "y", y);
  check_weight("add_layer_norm", "weight", weight, x);
  if (bias.defined()) check_weight("add_layer_norm", "bias", bias, x);
  check_fp32("add_layer_norm", "mean", mean, {x.shape()[0]});
  check_fp32("add_layer_norm", "rstd", rstd, {x.shape()[0]});
  dispatch(TRIREME_OP(add_layer_norm), ctx, x, branch, weight, bias, epsilon, sum, y, mean, rstd);
}

void layer_norm_backward_input(Context& ctx, const Tensor& dy, const Tensor& x,
                               const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                               const Tensor& residual, const Tensor& dx) {
  check_backward("layer_norm_backward_input", dy, x, mean, rstd);
  check_input_gradient("layer_norm_backward_input", x, weight, residual, dx);
  dispatch(TRIREME_OP(layer_norm_backward_input), ctx, dy, x, weight, mean, rstd, residual, dx);
}

void layer_norm_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& mean,
                                const Tensor& rstd, const Tensor& wanted, const Tensor& dbias) {
  check_backward("layer_norm_backward_weight", dy, x, mean, rstd);
  const Tensor dweight = weight_gradient(ctx, x, wanted);
  check_weight_gradients("layer_norm_backward_weight", x, dweight, dbias);
  if (on_dry_gpu(ctx)) gpu::parts_of_row_sums(ctx, 2, x.shape()[0], x.shape()[1]);
  dispatch(TRIREME_OP(layer_norm_backward_weight), ctx, dy, x, mean, rstd, dweight, dbias);
}

void layer_norm_backward(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& weight,
                         const Tensor& mean, const Tensor& rstd, const Tensor& residual,
                         const Tensor& dx, const Tensor& wanted, const Tensor& dbias,
                         const Tensor& dx_sums) {
  check_backward("layer_norm_backward", dy, x, mean, rstd);
  const Tensor dweight = weight_gradient(ctx, x, wanted);
  check_input_gradient("layer_norm_backward", x, weight, residual, dx);
  check_weight_gradients("layer_norm_backward", x, dweight, dbias);
  const bool sums_dx = dx_sums.defined();
  if (sums_dx) check_fp32("layer_norm_backward", "dx_sums", dx_sums, {x.shape()[1]});
  if (on_dry_gpu(ctx)) gpu::parts_of_row_sums(ctx, sums_dx ? 3 : 2, x.shape()[0], x.shape()[1]);
  dispatch(TRIREME_OP(layer_norm_backward), ctx, dy, x, weight, mean, rstd, residual, dx, dweight,
           dbias, dx_sums);
}

void rms_norm(Context& ctx, const Tensor& x, const NormFactor& factor, float epsilon,
              const Tensor& y, const Tensor& rstd) {
  check_rows("rms_norm", x, "y", y);
  check_weight("rms_norm", "weight", factor.weight, x);
  check_fp32("rms_norm", "rstd", rstd, {x.shape()[0]});
  dispatch(TRIREME_OP(rms_norm), ctx, x, factor, epsilon, y, rstd);
}

void add_rms_norm(Context& ctx, const Tensor& x, const Tensor& branch, const NormFactor& factor,
                  float epsilon, const Tensor& sum, const Tensor& y, const Tensor& rstd) {
  check_rows("add_rms_norm", x, "branch", branch);
  check_rows("add_rms_norm", x, "sum", sum);
  check_rows("add_rms_norm", x, "y", y);
  check_weight("add_rms_norm", "weight", factor.weight, x);
  check_fp32("add_rms_norm", "rstd", rstd, {x.shape()[0]});
  dispatch(TRIREME_OP(add_rms_norm), ctx, x, branch, factor, epsilon, sum, y, rstd);
}

void rms_norm_backward_input(Context& ctx, const Tensor& dy, const Tensor& x,
                             const NormFactor& factor, const Tensor& rstd, const Tensor& residual,
                             const Tensor& dx) {
  check_backward("rms_norm_backward_input", dy, x, Tensor(), rstd);
  check_input_gradient("rms_norm_backward_input", x, factor.weight, residual, dx);
  dispatch(TRIREME_OP(rms_norm_backward_input), ctx, dy, x, factor, rstd, residual, dx);
}

void rms_norm_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& rstd,
                              const Tensor& dweight) {
  check_backward("rms_norm_backward_weight", dy, x, Tensor(), rstd);
  check_weight_gradients("rms_norm_backward_weight", x, dweight, Tensor());
  if (on_dry_gpu(ctx)) gpu::parts_of_row_sums(ctx, 1, x.shape()[0], x.shape()[1]);
  dispatch(TRIREME_OP(rms_norm_backward_weight), ctx, dy, x, rstd, dweight);
}

void rms_norm_backward(Context& ctx, const Tensor& dy, const Tensor& x, const NormFactor& factor,
                       const Tensor& rstd, const Tensor& residual, const Tensor& dx,
                       const Tensor& dweight) {
  check_backward("rms_norm_backward", dy, x, Tensor(), rstd);
  check_input_gradient("rms_norm_backward", x, factor.weight, residual, dx);
  check_weight_gradients("rms_norm_backward", x, dweight, Tensor());
  if (on_dry_gpu(ctx)) gpu::parts_of_row_sums(ctx, 1, x.shape()[0], x.shape()[1]);
  dispatch(TRIREME_OP(rms_norm_backward), ctx, dy, x, factor, rstd, residual, dx, dweight);
}

}  // namespace trireme::ops
