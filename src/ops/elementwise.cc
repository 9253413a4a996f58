#include "trireme/ops/elementwise.h"

#include <fmt/format.h>

#include "ops/check.h"
#include "ops/device_ops.h"
#include "ops/gpu/workspace.h"

namespace trireme::ops {
namespace {

void check_alike(std::string_view op, std::string_view name, const Tensor& x,
                 std::int64_t elements) {
  check_floating(op, name, x);
  check_elements(op, name, x, elements);
}

// Checks x (rows, 2 * width) and y (rows, width).
void check_pair(std::string_view op, std::string_view name, const Tensor& x, const Tensor& y) {
  check_floating(op, name, x);
  check_rank(op, "y", y, 2);
  check_shape(op, name, x, {y.shape()[0], 2 * y.shape()[1]});
}

}  // namespace

void fill(Context& ctx, const Tensor& x, float value) {
  check_dtype(
      "fill", "x", x,
      {DType::kF32, DType::kBF16, DType::kF16, DType::kF64, DType::kI64, DType::kU16, DType::kU8});
  dispatch(TRIREME_OP(fill), ctx, x, value);
}

void cast(Context& ctx, const Tensor& x, const Tensor& y) {
  check_floating("cast", "x", x);
  check_alike("cast", "y", y, x.elements());
  dispatch(TRIREME_OP(cast), ctx, x, y);
}

void add(Context& ctx, const Tensor& a, const Tensor& b, const Tensor& y) {
  check_floating("add", "a", a);
  check_alike("add", "b", b, a.elements());
  check_alike("add", "y", y, a.elements());
  dispatch(TRIREME_OP(add), ctx, a, b, y);
}

void add_scaled(Context& ctx, const Tensor& x, float factor, const Tensor& y) {
  check_floating("add_scaled", "x", x);
  check_dtype("add_scaled", "y", y, {DType::kF32});
  check_alike("add_scaled", "y", y, x.elements());
  dispatch(TRIREME_OP(add_scaled), ctx, x, factor, y);
}

void scale(Context& ctx, const Tensor& x, float factor) {
  check_floating("scale", "x", x);
  dispatch(TRIREME_OP(scale), ctx, x, factor);
}

void add_bias(Context& ctx, const Tensor& x, const Tensor& bias) {
  check_floating("add_bias", "x", x);
  check_rank("add_bias", "x", x, 2);
  check_floating("add_bias", "bias", bias);
  check_shape("add_bias", "bias", bias, {x.shape()[1]});
  dispatch(TRIREME_OP(add_bias), ctx, x, bias);
}

void add_column_sums(Context& ctx, const Tensor& x, const Tensor& sums) {
  check_floating("add_column_sums", "x", x);
  check_rank("add_column_sums", "x", x, 2);
  check_fp32("add_column_sums", "sums", sums, {x.shape()[1]});
  if (on_dry_gpu(ctx)) gpu::parts_of_row_sums(ctx, 1, x.shape()[0], x.shape()[1]);
  dispatch(TRIREME_OP(add_column_sums), ctx, x, sums);
}

void gelu(Context& ctx, const Tensor& x, const Tensor& y) {
  check_floating("gelu", "x", x);
  check_alike("gelu", "y", y, x.elements());
  dispatch(TRIREME_OP(gelu), ctx, x, y);
}

void gelu_backward(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  check_floating("gelu_backward", "x", x);
  check_alike("gelu_backward", "dy", dy, x.elements());
  check_alike("gelu_backward", "dx", dx, x.elements());
  dispatch(TRIREME_OP(gelu_backward), ctx, x, dy, dx);
}

void gelu_erf(Context& ctx, const Tensor& x, const Tensor& y) {
  check_floating("gelu_erf", "x", x);
  check_alike("gelu_erf", "y", y, x.elements());
  dispatch(TRIREME_OP(gelu_erf), ctx, x, y);
}

void gelu_erf_backward(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx) {
  check_floating("gelu_erf_backward", "x", x);
  check_alike("gelu_erf_backward", "dy", dy, x.elements());
  check_alike("gelu_erf_backward", "dx", dx, x.elements());
  dispatch(TRIREME_OP(gelu_erf_backward), ctx, x, dy, dx);
}

void clamp(Context& ctx, const Tensor& x, const Clamp& range, const Tensor& y) {
  check_floating("clamp", "x", x);
  check_alike("clamp", "y", y, x.elements());
  dispatch(TRIREME_OP(clamp), ctx, x, range, y);
}

void clamp_backward(Context& ctx, const Tensor& y, const Tensor& dy, const Clamp& range,
                    const Tensor& dx) {
  check_floating("clamp_backward", "y", y);
  check_alike("clamp_backward", "dy", dy, y.elements());
  check_alike("clamp_backward", "dx", dx, y.elements());
  dispatch(TRIREME_OP(clamp_backward), ctx, y, dy, range, dx);
}

void swiglu(Context& ctx, const Tensor& gate_up, const Tensor& y) {
  check_floating("swiglu", "y", y);
  check_pair("swiglu", "gate_up", gate_up, y);
  dispatch(TRIREME_OP(swiglu), ctx, gate_up, y);
}

void swiglu_backward(Context& ctx, const Tensor& gate_up, const Tensor& dy,
                     const Tensor& dgate_up) {
  check_floating("swiglu_backward", "dy", dy);
  check_pair("swiglu_backward", "gate_up", gate_up, dy);
  check_pair("swiglu_backward", "dgate_up", dgate_up, dy);
  dispatch(TRIREME_OP(swiglu_backward), ctx, gate_up, dy, dgate_up);
}

void geglu(Context& ctx, const Tensor& gate_up, const Tensor& y) {
  check_floating("geglu", "y", y);
  check_pair("geglu", "gate_up", gate_up, y);
  dispatch(TRIREME_OP(geglu), ctx, gate_up, y);
}

void geglu_backward(Context& ctx, const Tensor& gate_up, const Tensor& dy, const Tensor& dgate_up) {
  check_floating("geglu_backward", "dy", dy);
  check_pair("geglu_backward", "gate_up", gate_up, dy);
  check_pair("geglu_backward", "dgate_up", dgate_up, dy);
  dispatch(TRIREME_OP(geglu_backward), ctx, gate_up, dy, dgate_up);
}

void dropout(Context& ctx, const Tensor& x, float rate, const DropoutPlace& place,
             const Tensor& y) {
  check_floating("dropout", "x", x);
  check_rank("dropout", "x", x, 2);
  check_floating("dropout", "y", y);
  check_shape("dropout", "y", y, x.shape());
  TRIREME_CHECK(0.0f <= rate && rate < 1.0f,
                fmt::format("dropout: the rate is {}, not in [0, 1)", rate));
  check_step_state("dropout", ctx);
  check_dtype("dropout", "samples", place.samples, {DType::kI64});
  const std::int64_t end = place.first_row + x.shape()[0];
  TRIREME_CHECK(
      place.length > 0 && place.first_row >= 0 && end <= place.samples.elements() * place.length,
      fmt::format("dropout: rows {} to {} of {} samples of {} positions", place.first_row, end,
                  place.samples.elements(), place.length));
  dispatch(TRIREME_OP(dropout), ctx, x, rate, place, y);
}

}  // namespace trireme::ops
