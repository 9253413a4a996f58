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

void check_length(std::string_view op, const Tensor& length) {
  if (length.defined()) check_fp32(op, "length", length, {1});
}

// The averages of Adam are corrected by the number of updates.
void check_updates(std::string_view op, const Context& ctx) {
  check_step_state(op, ctx);
  TRIREME_CHECK(!on_cpu(ctx) || ctx.step_state->finite == 0 || ctx.step_state->updates >= 1,
                fmt::format("{}: {} updates; they count from 1", op, ctx.step_state->updates));
}

void check_apart(std::string_view op, const Tensor& master, const Tensor& weights) {
  TRIREME_CHECK(master.raw() != weights.raw() || master.elements() == 0,
                fmt::format("{}: weights are not the master values", op));
}

}  // namespace

void adamw_step(Context& ctx, const AdamW& rule, const Tensor& master, const Tensor& gradient,
                const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& weights) {
  check_flat("adamw_step", master, gradient, weights);
  check_fp32("adamw_step", "exp_avg", exp_avg, master.shape());
  check_fp32("adamw_step", "exp_avg_sq", exp_avg_sq, master.shape());
  check_updates("adamw_step", ctx);
  dispatch(TRIREME_OP(adamw_step), ctx, rule, master, gradient, exp_avg, exp_avg_sq, weights);
}

void sgd_step(Context& ctx, const Sgd& rule, const Tensor& master, const Tensor& gradient,
              const Tensor& velocity, const Tensor& weights, const Tensor& length) {
  check_flat("sgd_step", master, gradient, weights);
  check_length("sgd_step", length);
  if (rule.momentum != 0.0f || velocity.defined()) {
    check_fp32("sgd_step", "velocity", velocity, master.shape());
  }
  TRIREME_CHECK(!rule.nesterov || rule.momentum != 0.0f, "sgd_step: nesterov without momentum");
  check_step_state("sgd_step", ctx);
  dispatch(TRIREME_OP(sgd_step), ctx, rule, master, gradient, velocity, weights, length);
}

void lion_step(Context& ctx, const Lion& rule, const Tensor& master, const Tensor& gradient,
               const Tensor& exp_avg, const Tensor& weights) {
  check_flat("lion_step", master, gradient, weights);
  check_fp32("lion_step", "exp_avg", exp_avg, master.shape());
  check_step_state("lion_step", ctx);
  dispatch(TRIREME_OP(lion_step), ctx, rule, master, gradient, exp_avg, weights);
}

void adamw_direction(Context& ctx, const AdamW& rule, const Tensor& master, const Tensor& gradient,
                     const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& direction) {
  check_flat("adamw_direction", master, gradient, direction);
  check_fp32("adamw_direction", "direction", direction, master.shape());
  check_fp32("adamw_direction", "exp_avg", exp_avg, master.shape());
  check_fp32("adamw_direction", "exp_avg_sq", exp_avg_sq, master.shape());
  check_updates("adamw_direction", ctx);
  dispatch(TRIREME_OP(adamw_direction), ctx, rule, master, gradient, exp_avg, exp_avg_sq,
           direction);
}

void schedule_free_step(Context& ctx, const ScheduleFree& rule, const Tensor& master,
                        const Tensor& gradient, const Tensor& gap, const Tensor& exp_avg_sq,
                        const Tensor& weights) {
  check_flat("schedule_free_step", master, gradient, weights);
  check_fp32("schedule_free_step", "gap", gap, master.shape());
  check_fp32("schedule_free_step", "exp_avg_sq", exp_avg_sq, master.shape());
  check_apart("schedule_free_step", master, weights);
  check_updates("schedule_free_step", ctx);
  dispatch(TRIREME_OP(schedule_free_step), ctx, rule, master, gradient, gap, exp_avg_sq, weights);
}

void schedule_free_weights(Context& ctx, const ScheduleFree& rule, const Tensor& master,
                           const Tensor& gap, const Tensor& weights) {
  check_flat("schedule_free_weights", master, gap, weights);
  check_apart("schedule_free_weights", master, weights);
  dispatch(TRIREME_OP(schedule_free_weights), ctx, rule, master, gap, weights);
}

void average_gradient(Context& ctx, const Momentum& rule, const Tensor& gradient,
                      const Tensor& average, const Tensor& direction) {
  check_fp32("average_gradient", "average", average, gradient.shape());
  check_flat("average_gradient", average, gradient, direction);
  check_step_state("average_gradient", ctx);
  dispatch(TRIREME_OP(average_gradient), ctx, rule, gradient, average, direction);
}

void step_along(Context& ctx, const StepAlong& rule, const Tensor& master, const Tensor& direction,
                const Tensor& weights, const Tensor& length) {
  check_flat("step_along", master, master, weights);
  check_length("step_along", length);
  check_floating("step_along", "direction", direction);
  check_shape("step_along", "direction", direction, master.shape());
  check_step_state("step_along", ctx);
  dispatch(TRIREME_OP(step_along), ctx, rule, master, direction, weights, length);
}

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

void count_average(Context& ctx, const WeightAverage& rule) {
  check_step_state("count_average", ctx);
  dispatch(TRIREME_OP(count_average), ctx, rule);
}

void average_weights(Context& ctx, const WeightAverage& rule, const Tensor& value,
                     const Tensor& average) {
  check_fp32("average_weights", "value", value, value.shape());
  check_fp32("average_weights", "average", average, value.shape());
  check_step_state("average_weights", ctx);
  dispatch(TRIREME_OP(average_weights), ctx, rule, value, average);
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
