#include "trireme/ops/matmul.h"

#include <fmt/format.h>

#include "trireme/ops/elementwise.h"

#include "ops/check.h"
#include "ops/matmul_engine.h"

namespace trireme::ops {
namespace {

void check_operands(const Tensor& a, const Tensor& b, const Tensor& c) {
  for (const auto& [name, x] : {std::pair{"a", &a}, std::pair{"b", &b}, std::pair{"c", &c}}) {
    check_floating("matmul", name, *x);
    check_rank("matmul", name, *x, 2);
  }
  TRIREME_CHECK(a.dtype() == b.dtype() && (c.dtype() == a.dtype() || c.dtype() == DType::kF32),
                fmt::format("matmul: {} times {} into {}", name_of(a.dtype()), name_of(b.dtype()),
                            name_of(c.dtype())));
}

// What the engine is asked for, once everything fits.
MatmulCall checked_call(const Tensor& a, Transpose transpose_a, const Tensor& b,
                        Transpose transpose_b, float beta, const Tensor& c) {
  check_operands(a, b, c);
  TRIREME_CHECK(beta == 0.0f || beta == 1.0f,
                fmt::format("matmul: beta is {}; it may be 0 or 1", beta));
  const bool ta = transpose_a == Transpose::kYes;
  const bool tb = transpose_b == Transpose::kYes;
  MatmulCall call;
  call.m = a.shape()[ta ? 1 : 0];
  call.k = a.shape()[ta ? 0 : 1];
  call.n = b.shape()[tb ? 0 : 1];
  TRIREME_CHECK(
      b.shape()[tb ? 1 : 0] == call.k && c.shape()[0] == call.m && c.shape()[1] == call.n,
      fmt::format("matmul: {}{} times {}{} into {}", a.shape().to_string(), ta ? "^T" : "",
                  b.shape().to_string(), tb ? "^T" : "", c.shape().to_string()));
  call.transpose_a = ta;
  call.transpose_b = tb;
  call.a = a.raw();
  call.b = b.raw();
  call.c = c.raw();
  call.dtype = a.dtype();
  call.c_dtype = c.dtype();
  call.accumulate = beta == 1.0f;
  return call;
}

}  // namespace

void matmul(Context& ctx, const Tensor& a, Transpose transpose_a, const Tensor& b,
            Transpose transpose_b, float beta, const Tensor& c) {
  const MatmulCall call = checked_call(a, transpose_a, b, transpose_b, beta, c);
  if (call.m == 0 || call.n == 0) return;
  if (call.k == 0) {
    if (beta == 0.0f) fill(ctx, c, 0.0f);
    return;
  }
  ctx.matmul->run(ctx, call);
}

void linear(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
            const Tensor& y) {
  if (!bias.defined()) return matmul(ctx, x, Transpose::kNo, weight, Transpose::kYes, 0.0f, y);
  MatmulCall call = checked_call(x, Transpose::kNo, weight, Transpose::kYes, 0.0f, y);
  check_floating("linear", "bias", bias);
  check_shape("linear", "bias", bias, {call.n});
  call.bias = bias.raw();
  call.bias_dtype = bias.dtype();
  if (call.m * call.n * call.k != 0 && ctx.matmul->fuses_bias(call)) {
    ctx.matmul->run(ctx, call);
  } else {
    matmul(ctx, x, Transpose::kNo, weight, Transpose::kYes, 0.0f, y);
    add_bias(ctx, y, bias);
  }
}

void linear_backward_input(Context& ctx, const Tensor& dy, const Tensor& weight, const Tensor& dx) {
  matmul(ctx, dy, Transpose::kNo, weight, Transpose::kNo, 0.0f, dx);
}

void linear_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& dweight,
                            const Tensor& dbias) {
  check_dtype("linear_backward_weight", "dweight", dweight, {DType::kF32});
  matmul(ctx, dy, Transpose::kYes, x, Transpose::kNo, 1.0f, dweight);
  if (dbias.defined()) add_column_sums(ctx, dy, dbias);
}

}  // namespace trireme::ops
