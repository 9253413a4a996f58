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

}  // namespace

void matmul(Context& ctx, const Tensor& a, Transpose transpose_a, const Tensor& b,
            Transpose transpose_b, float beta, const Tensor& c) {
  check_operands(a, b, c);
  TRIREME_CHECK(beta == 0.0f || beta == 1.0f,
                fmt::format("matmul: beta is {}; it may be 0 or 1", beta));
  const bool ta = transpose_a == Transpose::kYes;
  const bool tb = transpose_b == Transpose::kYes;
  const std::int64_t m = a.shape()[ta ? 1 : 0];
  const std::int64_t k = a.shape()[ta ? 0 : 1];
  const std::int64_t n = b.shape()[tb ? 0 : 1];
  TRIREME_CHECK(
      b.shape()[tb ? 1 : 0] == k && c.shape()[0] == m && c.shape()[1] == n,
      fmt::format("matmul: {}{} times {}{} into {}", a.shape().to_string(), ta ? "^T" : "",
                  b.shape().to_string(), tb ? "^T" : "", c.shape().to_string()));
  if (m == 0 || n == 0) return;
  if (k == 0) {
    if (beta == 0.0f) fill(ctx, c, 0.0f);
    return;
  }
  ctx.matmul->run(ctx,
                  {m, n, k, ta, tb, a.raw(), b.raw(), c.raw(), a.dtype(), c.dtype(), beta == 1.0f});
}

void linear(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
            const Tensor& y) {
  matmul(ctx, x, Transpose::kNo, weight, Transpose::kYes, 0.0f, y);
  if (bias.defined()) add_bias(ctx, y, bias);
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
