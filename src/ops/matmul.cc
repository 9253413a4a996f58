#include "trireme/ops/matmul.h"

#include <fmt/format.h>

#include "trireme/ops/block_scaled.h"
#include "trireme/ops/elementwise.h"
#include "trireme/ops/operation_counts.h"

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

// The call for the engine, after all checks.
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

void set_bias(MatmulCall& call, std::string_view op, const Tensor& bias) {
  if (!bias.defined()) return;
  check_floating(op, "bias", bias);
  check_shape(op, "bias", bias, {call.n});
  call.bias = bias.raw();
  call.bias_dtype = bias.dtype();
}

void set_gelu(MatmulCall& call, std::string_view op, Epilogue epilogue, const Tensor& pre,
              const Tensor& c) {
  check_shape(op, "pre", pre, c.shape());
  check_dtype(op, "pre", pre, {c.dtype()});
  call.epilogue = epilogue;
  call.auxiliary = pre.raw();
}

double bytes_of_scales(const OperandScales& of, std::int64_t rows, std::int64_t k) {
  if (of.scales == nullptr) return 0.0;
  return 4.0 * static_cast<double>(BlockScaled::shape_of_scales(of.blocks, rows, k).elements());
}

void run(Context& ctx, const MatmulCall& call) {
  if (!ctx.dry && !ctx.times) return ctx.matmul->run(ctx, call);
  const auto bytes = [](std::int64_t rows, std::int64_t columns, DType dtype) {
    return static_cast<double>(rows) * static_cast<double>(columns) *
           static_cast<double>(size_of(dtype));
  };
  const OperationCall made{
      .name = "matmul",
      .dtype = call.dtype,
      .sizes = {call.m, call.n, call.k, 1},
      .flops = 2.0 * call.multiplications(),
      .bytes = bytes(call.m, call.k, call.dtype) + bytes(call.k, call.n, call.dtype) +
               (call.addend == nullptr ? 1.0 : 2.0) * bytes(call.m, call.n, call.c_dtype) +
               bytes_of_scales(call.a_scales, call.m, call.k) +
               bytes_of_scales(call.b_scales, call.n, call.k)};
  count_or_time(ctx, made, [&] { ctx.matmul->run(ctx, call); });
}

OperandScales scales_of(const BlockScaled& x) {
  return {static_cast<const float*>(x.scales.raw()), x.blocks};
}

MatmulCall checked_scaled_call(const BlockScaled& a, const BlockScaled& b, float beta,
                               const Tensor& c) {
  MatmulCall call;
  check_scaled("scaled_matmul", "a", a);
  check_scaled("scaled_matmul", "b", b);
  TRIREME_CHECK(a.blocks == ScaledBlocks::kRows || b.blocks == ScaledBlocks::kRows,
                "scaled_matmul: both operands have tiles");
  TRIREME_CHECK(beta == 0.0f || beta == 1.0f,
                fmt::format("scaled_matmul: beta is {}; it may be 0 or 1", beta));
  call.m = a.codes.shape()[0];
  call.k = a.codes.shape()[1];
  call.n = b.codes.shape()[0];
  check_shape("scaled_matmul", "b", b.codes, {call.n, call.k});
  check_shape("scaled_matmul", "c", c, {call.m, call.n});
  check_dtype("scaled_matmul", "c", c, {DType::kF32, DType::kBF16});
  call.transpose_b = true;
  call.a = a.codes.raw();
  call.b = b.codes.raw();
  call.c = c.raw();
  call.a_scales = scales_of(a);
  call.b_scales = scales_of(b);
  call.dtype = DType::kE4M3;
  call.c_dtype = c.dtype();
  call.accumulate = beta == 1.0f;
  return call;
}

// Runs the call if the engine can fuse everything that it asks for. Returns whether it ran.
bool run_fused(Context& ctx, const MatmulCall& call) {
  if (call.m == 0 || call.n == 0 || call.k == 0 || !ctx.matmul->fuses(call)) return false;
  run(ctx, call);
  return true;
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
  run(ctx, call);
}

void linear(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
            const Tensor& y) {
  if (!bias.defined()) return matmul(ctx, x, Transpose::kNo, weight, Transpose::kYes, 0.0f, y);
  MatmulCall call = checked_call(x, Transpose::kNo, weight, Transpose::kYes, 0.0f, y);
  set_bias(call, "linear", bias);
  if (run_fused(ctx, call)) return;
  matmul(ctx, x, Transpose::kNo, weight, Transpose::kYes, 0.0f, y);
  add_bias(ctx, y, bias);
}

void linear_added(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                  const Tensor& addend, const Tensor& y) {
  MatmulCall call = checked_call(x, Transpose::kNo, weight, Transpose::kYes, 0.0f, y);
  set_bias(call, "linear_added", bias);
  check_shape("linear_added", "addend", addend, y.shape());
  check_dtype("linear_added", "addend", addend, {y.dtype()});
  TRIREME_CHECK(ctx.dry || y.elements() == 0 || addend.raw() != y.raw(),
                "linear_added: the addend is y");
  call.addend = addend.raw();
  if (run_fused(ctx, call)) return;
  linear(ctx, x, weight, bias, y);
  add(ctx, addend, y, y);
}

bool linear_gelu(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                 const Tensor& pre, const Tensor& y) {
  MatmulCall call = checked_call(x, Transpose::kNo, weight, Transpose::kYes, 0.0f, y);
  set_bias(call, "linear_gelu", bias);
  set_gelu(call, "linear_gelu", Epilogue::kGelu, pre, y);
  if (run_fused(ctx, call)) return false;
  linear(ctx, x, weight, bias, pre);
  gelu(ctx, pre, y);
  return true;
}

void linear_backward_input(Context& ctx, const Tensor& dy, const Tensor& weight, const Tensor& dx) {
  matmul(ctx, dy, Transpose::kNo, weight, Transpose::kNo, 0.0f, dx);
}

void linear_backward_input_gelu(Context& ctx, const Tensor& dy, const Tensor& weight,
                                const Tensor& pre, const Tensor& dpre, const Tensor& dbias) {
  MatmulCall call = checked_call(dy, Transpose::kNo, weight, Transpose::kNo, 0.0f, dpre);
  set_gelu(call, "linear_backward_input_gelu", Epilogue::kGeluBackward, pre, dpre);
  if (dbias.defined()) {
    check_fp32("linear_backward_input_gelu", "dbias", dbias, {call.n});
    // The engine overwrites the sums, but dbias is added to.
    const Tensor sums = ctx.allocate({call.n}, DType::kF32, MemoryUse::kWorkspace);
    call.bias_gradient = static_cast<float*>(sums.raw());
    if (run_fused(ctx, call)) return add(ctx, dbias, sums, dbias);
    call.bias_gradient = nullptr;
  }
  if (!run_fused(ctx, call)) {
    linear_backward_input(ctx, dy, weight, dpre);
    gelu_backward(ctx, pre, dpre, dpre);
  }
  if (dbias.defined()) add_column_sums(ctx, dpre, dbias);
}

void linear_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& dweight,
                            const Tensor& dbias, float beta) {
  if (dweight.defined()) {
    check_dtype("linear_backward_weight", "dweight", dweight, {DType::kF32});
    matmul(ctx, dy, Transpose::kYes, x, Transpose::kNo, beta, dweight);
  }
  if (dbias.defined()) add_column_sums(ctx, dy, dbias);
}

void scaled_matmul(Context& ctx, const BlockScaled& a, const BlockScaled& b, const Tensor& bias,
                   float beta, const Tensor& c) {
  MatmulCall call = checked_scaled_call(a, b, beta, c);
  TRIREME_CHECK(!bias.defined() || beta == 0.0f, "scaled_matmul: a bias, and beta 1");
  TRIREME_CHECK(call.k > 0, "scaled_matmul: no terms");
  if (call.m == 0 || call.n == 0) return;
  if (bias.defined()) {
    set_bias(call, "scaled_matmul", bias);
    if (run_fused(ctx, call)) return;
    call.bias = nullptr;
  }
  run(ctx, call);
  if (bias.defined()) add_bias(ctx, c, bias);
}

void check_scaled_products(Context& ctx) {
  using enum ScaledBlocks;
  const auto matrix = [&](ScaledBlocks blocks) {
    return allocate_scaled(ctx, kScaledSide, kScaledSide, blocks);
  };
  const BlockScaled rows = matrix(kRows), tiles = matrix(kTiles);
  const Tensor bf16 = ctx.allocate({kScaledSide, kScaledSide}, DType::kBF16);
  const Tensor fp32 = ctx.allocate({kScaledSide, kScaledSide}, DType::kF32);
  const bool has = ctx.matmul->fuses(checked_scaled_call(rows, tiles, 0.0f, bf16)) &&
                   ctx.matmul->fuses(checked_scaled_call(tiles, rows, 0.0f, bf16)) &&
                   ctx.matmul->fuses(checked_scaled_call(rows, rows, 1.0f, fp32));
  if (has) return;
  throw CudaError(fmt::format(
      "{} has no products of e4m3 with a scale for each block of 128 on this device: they need a "
      "GPU of compute capability 9.0 (H100, H200) and cuBLASLt 12.9 or newer",
      ctx.matmul->description(DType::kE4M3)));
}

}  // namespace trireme::ops
