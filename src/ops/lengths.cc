#include "trireme/ops/lengths.h"

#include <fmt/format.h>

#include "ops/check.h"
#include "ops/device_ops.h"
#include "ops/gpu/workspace.h"
#include "ops/squares.h"

namespace trireme::ops {

void step_length(Context& ctx, const StepLength& rule, const Tensor& squares,
                 const Tensor& length) {
  check_dtype("step_length", "squares", squares, {DType::kF64});
  check_shape("step_length", "squares", squares, {2});
  check_fp32("step_length", "length", length, {1});
  check_step_state("step_length", ctx);
  dispatch(TRIREME_OP(step_length), ctx, rule, squares, length);
}

void divide_by_root(Context& ctx, const Tensor& x, const Tensor& sum, float epsilon,
                    const Tensor& y) {
  check_fp32("divide_by_root", "x", x, x.shape());
  check_dtype("divide_by_root", "sum", sum, {DType::kF64});
  check_shape("divide_by_root", "sum", sum, {1});
  check_floating("divide_by_root", "y", y);
  TRIREME_CHECK(y.elements() == x.elements(), "divide_by_root: y has other elements than x");
  dispatch(TRIREME_OP(divide_by_root), ctx, x, sum, epsilon, y);
}

void add_sum_of_squares(Context& ctx, const Tensor& x, std::int64_t first, const Tensor& limbs) {
  const SquaresPart part{x, first};
  add_sum_of_squares(ctx, std::span(&part, 1), limbs);
}

void add_sum_of_squares(Context& ctx, std::span<const SquaresPart> parts, const Tensor& limbs) {
  check_dtype("add_sum_of_squares", "limbs", limbs, {DType::kI64});
  check_shape("add_sum_of_squares", "limbs", limbs, {kExactLimbs});
  std::int64_t elements = 0;
  for (const auto& [x, first] : parts) {
    check_dtype("add_sum_of_squares", "x", x, {DType::kF32});
    TRIREME_CHECK(first >= 0, fmt::format("add_sum_of_squares: from element {}", first));
    elements += x.elements();
  }
  if (elements == 0) return;
  if (on_dry_gpu(ctx)) {
    for_some(parts, gpu::kSquaresAtOnce, [&](std::span<const SquaresPart> some) {
      const std::int64_t units = units_of_squares(some);
      const Tensor sums = gpu::sums_of_units(ctx, units);
      gpu::limbs_of_shares(ctx, units);
    });
  }
  const double bytes = static_cast<double>(elements) * sizeof(float) + bytes_of(limbs);
  dispatch(TRIREME_OP(add_sum_of_squares), {.bytes = bytes, .sizes = {1, elements}}, ctx, parts,
           limbs);
}

void round_exact_sum(Context& ctx, const Tensor& limbs, const Tensor& sums) {
  check_dtype("round_exact_sum", "limbs", limbs, {DType::kI64});
  check_dtype("round_exact_sum", "sums", sums, {DType::kF64});
  check_rank("round_exact_sum", "sums", sums, 1);
  check_elements("round_exact_sum", "limbs", limbs, sums.elements() * kExactLimbs);
  dispatch(TRIREME_OP(round_exact_sum), ctx, limbs, sums);
}

void finish_gradient_norm(Context& ctx, const Tensor& sum, float clip, const Tensor& norm) {
  check_dtype("finish_gradient_norm", "sum", sum, {DType::kF64});
  check_dtype("finish_gradient_norm", "norm", norm, {DType::kF64});
  check_step_state("finish_gradient_norm", ctx);
  dispatch(TRIREME_OP(finish_gradient_norm), ctx, sum, clip, norm);
}

void clip_values(Context& ctx, const Tensor& gradient, float limit) {
  check_fp32("clip_values", "gradient", gradient, gradient.shape());
  check_step_state("clip_values", ctx);
  dispatch(TRIREME_OP(clip_values), ctx, gradient, limit);
}

void clip_to_norm(Context& ctx, const Tensor& gradient, const Tensor& sum, float limit) {
  check_fp32("clip_to_norm", "gradient", gradient, gradient.shape());
  check_dtype("clip_to_norm", "sum", sum, {DType::kF64});
  check_shape("clip_to_norm", "sum", sum, {1});
  check_step_state("clip_to_norm", ctx);
  dispatch(TRIREME_OP(clip_to_norm), ctx, gradient, sum, limit);
}

}  // namespace trireme::ops
