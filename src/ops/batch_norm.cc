#include "trireme/ops/batch_norm.h"

#include "ops/check.h"
#include "ops/convolution_shape.h"
#include "ops/device_ops.h"
#include "ops/gpu/workspace.h"

namespace trireme::ops {
namespace {

void check_columns(std::string_view op, const Tensor& x) {
  check_floating(op, "x", x);
  check_rank(op, "x", x, 2);
  TRIREME_CHECK(x.shape()[0] > 0 && x.shape()[1] > 0, std::string(op) + ": x is empty");
}

void check_like(std::string_view op, std::string_view name, const Tensor& x, const Tensor& like) {
  check_floating(op, name, x);
  check_shape(op, name, x, like.shape());
}

}  // namespace

void check_norm(std::string_view op, const BatchNorm& norm, const Tensor& x) {
  check_columns(op, x);
  const std::int64_t columns = x.shape()[1];
  check_fp32(op, "moments", norm.moments, {2, columns});
  check_floating(op, "weight", norm.weight);
  check_shape(op, "weight", norm.weight, {columns});
  check_floating(op, "bias", norm.bias);
  check_shape(op, "bias", norm.bias, {columns});
}

void batch_moments(Context& ctx, const Tensor& x, const Tensor& moments) {
  check_columns("batch_moments", x);
  check_fp32("batch_moments", "moments", moments, {2, x.shape()[1]});
  if (on_dry_gpu(ctx)) gpu::parts_of_column_pairs(ctx, x.shape()[0], x.shape()[1]);
  dispatch(TRIREME_OP(batch_moments), ctx, x, moments);
}

void merge_batch_moments(Context& ctx, const Tensor& parts, const Tensor& moments) {
  check_rank("merge_batch_moments", "parts", parts, 3);
  const Shape& shape = parts.shape();
  TRIREME_CHECK(shape[0] > 0 && shape[2] > 0, "merge_batch_moments: parts is empty");
  check_fp32("merge_batch_moments", "parts", parts, {shape[0], 2, shape[2]});
  check_fp32("merge_batch_moments", "moments", moments, {2, shape[2]});
  dispatch(TRIREME_OP(merge_batch_moments), ctx, parts, moments);
}

void batch_norm(Context& ctx, const BatchNorm& norm, const Tensor& x, const Tensor& residual,
                const Tensor& y) {
  check_norm("batch_norm", norm, x);
  if (residual.defined()) check_like("batch_norm", "residual", residual, x);
  check_like("batch_norm", "y", y, x);
  dispatch(TRIREME_OP(batch_norm), ctx, norm, x, residual, y);
}

void batch_norm_backward_sums(Context& ctx, const BatchNorm& norm, const Tensor& dy,
                              const Tensor& x, const Tensor& y, const Tensor& sums) {
  check_norm("batch_norm_backward_sums", norm, x);
  check_like("batch_norm_backward_sums", "dy", dy, x);
  if (y.defined()) check_like("batch_norm_backward_sums", "y", y, x);
  check_fp32("batch_norm_backward_sums", "sums", sums, {2, x.shape()[1]});
  if (on_dry_gpu(ctx)) gpu::parts_of_column_pairs(ctx, x.shape()[0], x.shape()[1]);
  dispatch(TRIREME_OP(batch_norm_backward_sums), ctx, norm, dy, x, y, sums);
}

void batch_norm_backward(Context& ctx, const BatchNorm& norm, const Tensor& dy, const Tensor& x,
                         const Tensor& y, const Tensor& sums, std::int64_t count,
                         const Tensor& dresidual, const Tensor& dx) {
  check_norm("batch_norm_backward", norm, x);
  check_like("batch_norm_backward", "dy", dy, x);
  if (y.defined()) check_like("batch_norm_backward", "y", y, x);
  check_fp32("batch_norm_backward", "sums", sums, {2, x.shape()[1]});
  TRIREME_CHECK(count >= x.shape()[0], "batch_norm_backward: the moments are from fewer rows");
  if (dresidual.defined()) check_like("batch_norm_backward", "dresidual", dresidual, x);
  check_like("batch_norm_backward", "dx", dx, x);
  dispatch(TRIREME_OP(batch_norm_backward), ctx, norm, dy, x, y, sums, count, dresidual, dx);
}

}  // namespace trireme::ops
