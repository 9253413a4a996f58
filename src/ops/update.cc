#include "trireme/ops/update.h"

#include <fmt/format.h>

#include "ops/check.h"
#include "ops/device_ops.h"

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

// In fp32 or split.
void check_masters(std::string_view op, const Tensor& master, const Tensor& weights,
                   const Shape& shape) {
  check_dtype(op, "master", master, {DType::kF32, DType::kU16});
  check_shape(op, "master", master, shape);
  check_floating(op, "weights", weights);
  if (master.dtype() == DType::kU16) check_dtype(op, "weights", weights, {DType::kBF16});
  check_shape(op, "weights", weights, shape);
}

// For steps that take split master values, too.
void check_step(std::string_view op, const Tensor& master, const Tensor& gradient,
                const Tensor& weights) {
  check_rank(op, "master", master, 1);
  check_masters(op, master, weights, master.shape());
  check_fp32(op, "gradient", gradient, master.shape());
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

void check_scaling(std::string_view op, const Context& ctx, const LossScaling& rule) {
  check_step_state(op, ctx);
  TRIREME_CHECK(0.0f < rule.smallest && rule.smallest <= rule.largest && rule.interval >= 1,
                fmt::format("{}: from {} to {}, doubled after {} steps", op, rule.smallest,
                            rule.largest, rule.interval));
}

}  // namespace

void adamw_step(Context& ctx, const AdamW& rule, const Tensor& master, const Tensor& gradient,
                const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& weights) {
  const AdamWPart part{rule, master, gradient, exp_avg, exp_avg_sq, weights};
  adamw_step(ctx, std::span(&part, 1));
}

void adamw_step(Context& ctx, std::span<const AdamWPart> parts) {
  std::int64_t elements = 0;
  double bytes = 0.0;
  for (const AdamWPart& part : parts) {
    check_step("adamw_step", part.master, part.gradient, part.weights);
    check_fp32("adamw_step", "exp_avg", part.exp_avg, part.master.shape());
    check_fp32("adamw_step", "exp_avg_sq", part.exp_avg_sq, part.master.shape());
    elements += part.master.elements();
    bytes += bytes_of(part.master) + bytes_of(part.gradient) + bytes_of(part.exp_avg) +
             bytes_of(part.exp_avg_sq) + bytes_of(part.weights);
  }
  check_updates("adamw_step", ctx);
  if (parts.empty()) return;
  dispatch(TRIREME_OP(adamw_step), {.bytes = bytes, .sizes = {1, elements}}, ctx, parts);
}

void sgd_step(Context& ctx, const Sgd& rule, const Tensor& master, const Tensor& gradient,
              const Tensor& velocity, const Tensor& weights, const Tensor& length) {
  check_step("sgd_step", master, gradient, weights);
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
  check_step("lion_step", master, gradient, weights);
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
  check_floating("step_along", "direction", direction);
  check_rank("step_along", "direction", direction, 1);
  check_masters("step_along", master, weights, direction.shape());
  check_length("step_along", length);
  check_step_state("step_along", ctx);
  dispatch(TRIREME_OP(step_along), ctx, rule, master, direction, weights, length);
}

void update_loss_scale(Context& ctx, const LossScaling& rule) {
  check_scaling("update_loss_scale", ctx, rule);
  dispatch(TRIREME_OP(update_loss_scale), ctx, rule);
}

void carry_over(Context& ctx, const LossScaling& rule, const Tensor& x) {
  check_scaling("carry_over", ctx, rule);
  check_dtype("carry_over", "x", x, {DType::kF32});
  dispatch(TRIREME_OP(carry_over), ctx, rule, x);
}

}  // namespace trireme::ops
