#include "trireme/ops/update.h"

#include <fmt/format.h>

#include "ops/check.h"
#include "ops/device_ops.h"
#include "ops/gpu/workspace.h"
#include "ops/squares.h"

namespace trireme::ops {
namespace {

void check_flat(std::string_view op, const Tensor& master, const Tensor& gradient,
                const Tensor& weights) {
  check_rank(op, "master", master, 1);
  check_fp32(op, "master", master, master.shape());
  check_fp32(op, "gradient", gradient, master.shape());
  check_floating(op, "weights", weights);
  check_shape(op, "weights", weights, master.shape());
}

}  // namespace

void adamw_step(Context& ctx, const AdamW& rule, const Tensor& master, const Tensor& gradient,
                const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& weights) {
  check_flat("adamw_step", master, gradient, weights);
  check_fp32("adamw_step", "exp_avg", exp_avg, master.shape());
  check_fp32("adamw_step", "exp_avg_sq", exp_avg_sq, master.shape());
  check_step_state("adamw_step", ctx);
  TRIREME_CHECK(!on_cpu(ctx) || ctx.step_state->finite == 0 || ctx.step_state->updates >= 1,
                fmt::format("adamw_step: {} updates; they count from 1", ctx.step_state->updates));
  dispatch(TRIREME_OP(adamw_step), ctx, rule, master, gradient, exp_avg, exp_avg_sq, weights);
}

void sgd_step(Context& ctx, const Sgd& rule, const Tensor& master, const Tensor& gradient,
              const Tensor& velocity, const Tensor& weights) {
  check_flat("sgd_step", master, gradient, weights);
  if (rule.momentum != 0.0f || velocity.defined()) {
    check_fp32("sgd_step", "velocity", velocity, master.shape());
  }
  TRIREME_CHECK(!rule.nesterov || rule.momentum != 0.0f, "sgd_step: nesterov without momentum");
  check_step_state("sgd_step", ctx);
  dispatch(TRIREME_OP(sgd_step), ctx, rule, master, gradient, velocity, weights);
}

void lion_step(Context& ctx, const Lion& rule, const Tensor& master, const Tensor& gradient,
               const Tensor& exp_avg, const Tensor& weights) {
  check_flat("lion_step", master, gradient, weights);
  check_fp32("lion_step", "exp_avg", exp_avg, master.shape());
  check_step_state("lion_step", ctx);
  dispatch(TRIREME_OP(lion_step), ctx, rule, master, gradient, exp_avg, weights);
}

void average_gradient(Context& ctx, const Momentum& rule, const Tensor& gradient,
                      const Tensor& average, const Tensor& direction) {
  check_fp32("average_gradient", "average", average, gradient.shape());
  check_flat("average_gradient", average, gradient, direction);
  check_step_state("average_gradient", ctx);
  dispatch(TRIREME_OP(average_gradient), ctx, rule, gradient, average, direction);
}

void step_along(Context& ctx, const StepAlong& rule, const Tensor& master, const Tensor& direction,
                const Tensor& weights) {
  check_flat("step_along", master, master, weights);
  check_floating("step_along", "direction", direction);
  check_shape("step_along", "direction", direction, master.shape());
  check_step_state("step_along", ctx);
  dispatch(TRIREME_OP(step_along), ctx, rule, master, direction, weights);
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
  check_dtype("add_sum_of_squares", "x", x, {DType::kF32});
  check_dtype("add_sum_of_squares", "limbs", limbs, {DType::kI64});
  check_shape("add_sum_of_squares", "limbs", limbs, {kExactLimbs});
  TRIREME_CHECK(first >= 0, fmt::format("add_sum_of_squares: from element {}", first));
  if (x.elements() == 0) return;
  if (on_dry_gpu(ctx)) {
    const std::int64_t units = units_of_squares(first, x.elements());
    const Tensor sums = gpu::sums_of_units(ctx, units);
    gpu::limbs_of_shares(ctx, units);
  }
  dispatch(TRIREME_OP(add_sum_of_squares), ctx, x, first, limbs);
}

void round_exact_sum(Context& ctx, const Tensor& limbs, const Tensor& sum) {
  check_dtype("round_exact_sum", "limbs", limbs, {DType::kI64});
  check_shape("round_exact_sum", "limbs", limbs, {kExactLimbs});
  check_dtype("round_exact_sum", "sum", sum, {DType::kF64});
  check_shape("round_exact_sum", "sum", sum, {1});
  dispatch(TRIREME_OP(round_exact_sum), ctx, limbs, sum);
}

void finish_gradient_norm(Context& ctx, const Tensor& sum, float clip, const Tensor& norm) {
  check_dtype("finish_gradient_norm", "sum", sum, {DType::kF64});
  check_dtype("finish_gradient_norm", "norm", norm, {DType::kF64});
  check_step_state("finish_gradient_norm", ctx);
  dispatch(TRIREME_OP(finish_gradient_norm), ctx, sum, clip, norm);
}

void commit_state(Context& ctx, float keep, const Tensor& proposed, const Tensor& value) {
  check_fp32("commit_state", "value", value, value.shape());
  check_fp32("commit_state", "proposed", proposed, value.shape());
  check_step_state("commit_state", ctx);
  dispatch(TRIREME_OP(commit_state), ctx, keep, proposed, value);
}

void update_loss_scale(Context& ctx, const LossScaling& rule) {
  check_step_state("update_loss_scale", ctx);
  TRIREME_CHECK(0.0f < rule.smallest && rule.smallest <= rule.largest && rule.interval >= 1,
                fmt::format("update_loss_scale: from {} to {}, doubled after {} steps",
                            rule.smallest, rule.largest, rule.interval));
  dispatch(TRIREME_OP(update_loss_scale), ctx, rule);
}

}  // namespace trireme::ops
