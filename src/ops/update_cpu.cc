#include <algorithm>
#include <cmath>

#include "ops/cpu/parallel.h"
#include "ops/cpu/staging.h"
#include "ops/device_ops.h"
#include "ops/loss_scaling.h"
#include "ops/step_length.h"

namespace trireme::ops::cpu {
namespace {

// Writes the new master values to the weights, unless they are the same memory.
void publish(const Tensor& master, const Tensor& weights, std::int64_t begin, std::int64_t n) {
  if (weights.raw() == master.raw()) return;
  const float* from = master.data<float>() + begin;
  if (weights.dtype() == DType::kF32) {
    std::copy_n(from, n, weights.data<float>() + begin);
  } else {
    write_back(weights, begin, n, from);
  }
}

// Calls body(values, begin, n) with master values of all elements, in fp32, which it changes in
// place; then the master's memory and the weights have them.
template <class Body>
void change_masters(const Context& ctx, const Tensor& master, const Tensor& weights,
                    std::int64_t grain, const Body& body) {
  if (master.dtype() != DType::kU16) {
    parallel_ranges(ctx, master.elements(), grain, [&](std::int64_t begin, std::int64_t end) {
      body(master.data<float>() + begin, begin, end - begin);
      publish(master, weights, begin, end - begin);
    });
    return;
  }
  parallel_ranges(ctx, master.elements(), kStageElements,
                  [&](std::int64_t begin, std::int64_t end) {
                    const ElementwiseKernels& k = kernels().elementwise;
                    auto* const high = static_cast<std::uint16_t*>(weights.raw()) + begin;
                    auto* const low = master.data<std::uint16_t>() + begin;
                    Stage stage;
                    k.join(high, low, stage.values, end - begin);
                    body(stage.values, begin, end - begin);
                    k.split(stage.values, high, low, end - begin);
                  });
}

// The number in a tensor of one; `otherwise` if it is undefined.
float value_of(const Context& ctx, const Tensor& one, float otherwise) {
  return one.defined() && !ctx.dry ? one.data<float>()[0] : otherwise;
}

AdamWFactors adamw_factors(const AdamW& rule, const StepState& state, double step_size) {
  const auto t = static_cast<double>(state.updates);
  const float learning_rate = state.learning_rate * rule.rate;
  const double bias1 = 1.0 - std::pow(static_cast<double>(rule.beta1), t);
  const double bias2 = 1.0 - std::pow(static_cast<double>(rule.beta2), t);
  return {
      .beta1 = rule.beta1,
      .beta2 = rule.beta2,
      .epsilon = rule.epsilon,
      .gradient_factor = gradient_factor(state),
      .step_size = static_cast<float>(step_size / bias1),
      .inverse_root_bias2 = static_cast<float>(1.0 / std::sqrt(bias2)),
      .keep = 1.0f - learning_rate * rule.weight_decay,
      .l2_penalty = rule.l2_penalty,
  };
}

}  // namespace

void adamw_step(Context& ctx, std::span<const AdamWPart> parts) {
  const StepState& state = *ctx.step_state;
  if (state.finite == 0) return;
  for (const AdamWPart& part : parts) {
    const AdamWFactors factors =
        adamw_factors(part.rule, state, static_cast<double>(state.learning_rate * part.rule.rate));
    change_masters(ctx, part.master, part.weights, kElementGrain,
                   [&](float* values, std::int64_t begin, std::int64_t n) {
                     kernels().update.adamw(factors, values, part.gradient.data<float>() + begin,
                                            part.exp_avg.data<float>() + begin,
                                            part.exp_avg_sq.data<float>() + begin, n);
                   });
  }
}

void sgd_step(Context& ctx, const Sgd& rule, const Tensor& master, const Tensor& gradient,
              const Tensor& velocity, const Tensor& weights, const Tensor& length) {
  const StepState& state = *ctx.step_state;
  if (state.finite == 0) return;
  const SgdFactors factors = {
      .momentum = rule.momentum,
      .gradient_factor = gradient_factor(state),
      .learning_rate = state.learning_rate * rule.rate,
      .weight_decay = rule.weight_decay,
      .l2_penalty = rule.l2_penalty,
      .length = value_of(ctx, length, 1.0f),
      .nesterov = rule.nesterov,
  };
  change_masters(ctx, master, weights, kElementGrain,
                 [&](float* values, std::int64_t begin, std::int64_t n) {
                   float* v = velocity.defined() ? velocity.data<float>() + begin : nullptr;
                   kernels().update.sgd(factors, values, gradient.data<float>() + begin, v, n);
                 });
}

void lion_step(Context& ctx, const Lion& rule, const Tensor& master, const Tensor& gradient,
               const Tensor& exp_avg, const Tensor& weights) {
  const StepState& state = *ctx.step_state;
  if (state.finite == 0) return;
  const LionFactors factors = {
      .beta1 = rule.beta1,
      .beta2 = rule.beta2,
      .gradient_factor = gradient_factor(state),
      .learning_rate = state.learning_rate * rule.rate,
      .weight_decay = rule.weight_decay,
  };
  change_masters(ctx, master, weights, kElementGrain,
                 [&](float* values, std::int64_t begin, std::int64_t n) {
                   kernels().update.lion(factors, values, gradient.data<float>() + begin,
                                         exp_avg.data<float>() + begin, n);
                 });
}

void adamw_direction(Context& ctx, const AdamW& rule, const Tensor& master, const Tensor& gradient,
                     const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& direction) {
  const StepState& state = *ctx.step_state;
  const bool skips = state.finite == 0;
  const AdamWFactors factors = skips ? AdamWFactors{} : adamw_factors(rule, state, 1.0);
  parallel_ranges(ctx, master.elements(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    float* to = direction.data<float>() + begin;
    if (skips) {
      std::fill_n(to, end - begin, 0.0f);
      return;
    }
    kernels().update.adamw_direction(factors, rule.weight_decay, master.data<float>() + begin,
                                     gradient.data<float>() + begin, exp_avg.data<float>() + begin,
                                     exp_avg_sq.data<float>() + begin, to, end - begin);
  });
}

void schedule_free_step(Context& ctx, const ScheduleFree& rule, const Tensor& master,
                        const Tensor& gradient, const Tensor& gap, const Tensor& exp_avg_sq,
                        const Tensor& weights) {
  const StepState& state = *ctx.step_state;
  if (state.finite == 0) return;
  const ScheduleFreeFactors now = schedule_free_factors(rule, state);
  const ScheduleFreeStep factors = {.beta2 = rule.beta2,
                                    .epsilon = rule.epsilon,
                                    .weight_decay = rule.weight_decay,
                                    .gradient_factor = now.gradient_factor,
                                    .inverse_root_bias2 = now.inverse_root_bias2,
                                    .learning_rate = now.learning_rate,
                                    .part = now.part,
                                    .share = now.share};
  parallel_ranges(
      ctx, master.elements(), kStageElements, [&](std::int64_t begin, std::int64_t end) {
        Stage stage;
        float* y = write_place(weights, begin, stage.values);
        kernels().update.schedule_free(factors, master.data<float>() + begin,
                                       gradient.data<float>() + begin, gap.data<float>() + begin,
                                       exp_avg_sq.data<float>() + begin, y, end - begin);
        write_back(weights, begin, end - begin, y);
      });
}

void schedule_free_weights(Context& ctx, const ScheduleFree& rule, const Tensor& master,
                           const Tensor& gap, const Tensor& weights) {
  parallel_ranges(
      ctx, master.elements(), kStageElements, [&](std::int64_t begin, std::int64_t end) {
        Stage stage;
        float* y = write_place(weights, begin, stage.values);
        kernels().update.schedule_free_weights(1.0f - rule.beta1, master.data<float>() + begin,
                                               gap.data<float>() + begin, y, end - begin);
        write_back(weights, begin, end - begin, y);
      });
}

void average_gradient(Context& ctx, const Momentum& rule, const Tensor& gradient,
                      const Tensor& average, const Tensor& direction) {
  const StepState& state = *ctx.step_state;
  const bool skips = state.finite == 0;
  const MomentumFactors factors = {.momentum = rule.momentum,
                                   .gradient_factor = gradient_factor(state),
                                   .nesterov = rule.nesterov};
  parallel_ranges(ctx, gradient.elements(), kStageElements,
                  [&](std::int64_t begin, std::int64_t end) {
                    Stage stage;
                    float* to = write_place(direction, begin, stage.values);
                    if (skips) {
                      std::fill_n(to, end - begin, 0.0f);
                    } else {
                      kernels().update.average(factors, gradient.data<float>() + begin,
                                               average.data<float>() + begin, to, end - begin);
                    }
                    write_back(direction, begin, end - begin, to);
                  });
}

void step_along(Context& ctx, const StepAlong& rule, const Tensor& master, const Tensor& direction,
                const Tensor& weights, const Tensor& length) {
  const StepState& state = *ctx.step_state;
  if (state.finite == 0) return;
  const float learning_rate = state.learning_rate * rule.rate;
  const float keep = 1.0f - learning_rate * rule.weight_decay;
  const float along = value_of(ctx, length, learning_rate);
  change_masters(ctx, master, weights, kStageElements,
                 [&](float* values, std::int64_t begin, std::int64_t n) {
                   Stage stage;
                   kernels().update.step_along(keep, along, values,
                                               read_fp32(direction, begin, n, stage.values), n);
                 });
}

void update_loss_scale(Context& ctx, const LossScaling& rule) {
  next_loss_scale(rule, *ctx.step_state);
}

void carry_over(Context& ctx, const LossScaling& rule, const Tensor& x) {
  const float share = carried_share(rule, *ctx.step_state);
  if (share == 1.0f) return;
  parallel_ranges(ctx, x.elements(), kElementGrain, [&](std::int64_t begin, std::int64_t end) {
    kernels().elementwise.scale(x.data<float>() + begin, share, end - begin);
  });
}

}  // namespace trireme::ops::cpu
