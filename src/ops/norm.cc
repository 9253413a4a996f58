#include "trireme/ops/norm.h"

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
  check_rows("layer_norm_backward_input", x, "dy", dy);
  if (residual.defined()) check_rows("layer_norm_backward_input", x, "residual", residual);
  check_rows("layer_norm_backward_input", x, "dx", dx);
  check_weight("layer_norm_backward_input", "weight", weight, x);
  check_fp32("layer_norm_backward_input", "mean", mean, {x.shape()[0]});
  check_fp32("layer_norm_backward_input", "rstd", rstd, {x.shape()[0]});
  dispatch(TRIREME_OP(layer_norm_backward_input), ctx, dy, x, weight, mean, rstd, residual, dx);
}

void layer_norm_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& mean,
                                const Tensor& rstd, const Tensor& dweight, const Tensor& dbias) {
  check_rows("layer_norm_backward_weight", x, "dy", dy);
  check_fp32("layer_norm_backward_weight", "mean", mean, {x.shape()[0]});
  check_fp32("layer_norm_backward_weight", "rstd", rstd, {x.shape()[0]});
  check_fp32("layer_norm_backward_weight", "dweight", dweight, {x.shape()[1]});
  if (dbias.defined()) check_fp32("layer_norm_backward_weight", "dbias", dbias, {x.shape()[1]});
  if (on_dry_gpu(ctx)) gpu::parts_of_row_sums(ctx, 2, x.shape()[0], x.shape()[1]);
  dispatch(TRIREME_OP(layer_norm_backward_weight), ctx, dy, x, mean, rstd, dweight, dbias);
}

void rms_norm(Context& ctx, const Tensor& x, const Tensor& weight, float epsilon, const Tensor& y,
              const Tensor& rstd) {
  check_rows("rms_norm", x, "y", y);
  check_weight("rms_norm", "weight", weight, x);
  check_fp32("rms_norm", "rstd", rstd, {x.shape()[0]});
  dispatch(TRIREME_OP(rms_norm), ctx, x, weight, epsilon, y, rstd);
}

void add_rms_norm(Context& ctx, const Tensor& x, const Tensor& branch, const Tensor& weight,
                  float epsilon, const Tensor& sum, const Tensor& y, const Tensor& rstd) {
  check_rows("add_rms_norm", x, "branch", branch);
  check_rows("add_rms_norm", x, "sum", sum);
  check_rows("add_rms_norm", x, "y", y);
  check_weight("add_rms_norm", "weight", weight, x);
  check_fp32("add_rms_norm", "rstd", rstd, {x.shape()[0]});
  dispatch(TRIREME_OP(add_rms_norm), ctx, x, branch, weight, epsilon, sum, y, rstd);
}

void rms_norm_backward_input(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& weight,
                             const Tensor& rstd, const Tensor& residual, const Tensor& dx) {
  check_rows("rms_norm_backward_input", x, "dy", dy);
  if (residual.defined()) check_rows("rms_norm_backward_input", x, "residual", residual);
  check_rows("rms_norm_backward_input", x, "dx", dx);
  check_weight("rms_norm_backward_input", "weight", weight, x);
  check_fp32("rms_norm_backward_input", "rstd", rstd, {x.shape()[0]});
  dispatch(TRIREME_OP(rms_norm_backward_input), ctx, dy, x, weight, rstd, residual, dx);
}

void rms_norm_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& rstd,
                              const Tensor& dweight) {
  check_rows("rms_norm_backward_weight", x, "dy", dy);
  check_fp32("rms_norm_backward_weight", "rstd", rstd, {x.shape()[0]});
  check_fp32("rms_norm_backward_weight", "dweight", dweight, {x.shape()[1]});
  if (on_dry_gpu(ctx)) gpu::parts_of_row_sums(ctx, 1, x.shape()[0], x.shape()[1]);
  dispatch(TRIREME_OP(rms_norm_backward_weight), ctx, dy, x, rstd, dweight);
}

}  // namespace trireme::ops
