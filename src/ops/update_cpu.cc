#include <algorithm>
#include <cmath>
#include <vector>

#include "trireme/base/exact_sum.h"

#include "ops/cpu/parallel.h"
#include "ops/cpu/staging.h"
#include "ops/device_ops.h"
#include "ops/loss_scaling.h"
#include "ops/squares.h"
#include "ops/step_length.h"

namespace trireme::ops::cpu {
namespace {

constexpr std::int64_t kGrain = 16384;

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

void adamw_step(Context& ctx, const AdamW& rule, const Tensor& master, const Tensor& gradient,
                const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& weights) {
  const StepState& state = *ctx.step_state;
  if (state.finite == 0) return;
  const AdamWFactors factors =
      adamw_factors(rule, state, static_cast<double>(state.learning_rate * rule.rate));
  parallel_ranges(ctx, master.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    kernels().update.adamw(factors, master.data<float>() + begin, gradient.data<float>() + begin,
                           exp_avg.data<float>() + begin, exp_avg_sq.data<float>() + begin,
                           end - begin);
    publish(master, weights, begin, end - begin);
  });
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
  parallel_ranges(ctx, master.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    float* v = velocity.defined() ? velocity.data<float>() + begin : nullptr;
    kernels().update.sgd(factors, master.data<float>() + begin, gradient.data<float>() + begin, v,
                         end - begin);
    publish(master, weights, begin, end - begin);
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
  parallel_ranges(ctx, master.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    kernels().update.lion(factors, master.data<float>() + begin, gradient.data<float>() + begin,
                          exp_avg.data<float>() + begin, end - begin);
    publish(master, weights, begin, end - begin);
  });
}

void step_length(Context& ctx, const StepLength& rule, const Tensor& squares,
                 const Tensor& length) {
  on_this_thread(ctx, [&] {
    const double* of = squares.data<double>();
    length.data<float>()[0] = length_of_step(rule, *ctx.step_state, of[0], of[1]);
  });
}

void adamw_direction(Context& ctx, const AdamW& rule, const Tensor& master, const Tensor& gradient,
                     const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& direction) {
  const StepState& state = *ctx.step_state;
  const bool skips = state.finite == 0;
  const AdamWFactors factors = skips ? AdamWFactors{} : adamw_factors(rule, state, 1.0);
  parallel_ranges(ctx, master.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
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
  parallel_ranges(
      ctx, master.elements(), kStageElements, [&](std::int64_t begin, std::int64_t end) {
        Stage stage;
        kernels().update.step_along(keep, along, master.data<float>() + begin,
                                    read_fp32(direction, begin, end - begin, stage.values),
                                    end - begin);
        publish(master, weights, begin, end - begin);
      });
}

void divide_by_root(Context& ctx, const Tensor& x, const Tensor& sum, float epsilon,
                    const Tensor& y) {
  parallel_ranges(ctx, x.elements(), kStageElements, [&](std::int64_t begin, std::int64_t end) {
    const double root = std::sqrt(sum.data<double>()[0]);
    const auto factor = static_cast<float>(1.0 / (root + static_cast<double>(epsilon)));
    Stage stage;
    float* to = write_place(y, begin, stage.values);
    const float* from = x.data<float>() + begin;
    if (from != to) std::copy_n(from, end - begin, to);
    kernels().elementwise.scale(to, factor, end - begin);
    write_back(y, begin, end - begin, to);
  });
}

void count_average(Context& ctx, const WeightAverage& rule) {
  on_this_thread(ctx, [&] {
    if (counts_in_average(rule, *ctx.step_state)) ++ctx.step_state->averaged;
  });
}

void average_weights(Context& ctx, const WeightAverage& rule, const Tensor& value,
                     const Tensor& average) {
  if (ctx.step_state->finite == 0) return;
  const float share = share_of_weights(rule, *ctx.step_state);
  parallel_ranges(ctx, value.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    kernels().update.average_weights(share, value.data<float>() + begin,
                                     average.data<float>() + begin, end - begin);
  });
}

void clip_values(Context& ctx, const Tensor& gradient, float limit) {
  const float most = limit_in_memory(*ctx.step_state, limit);
  parallel_ranges(ctx, gradient.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    float* g = gradient.data<float>();
    for (std::int64_t i = begin; i < end; ++i) {
      g[i] = g[i] > most ? most : g[i] < -most ? -most : g[i];
    }
  });
}

void clip_to_norm(Context& ctx, const Tensor& gradient, const Tensor& sum, float limit) {
  parallel_ranges(ctx, gradient.elements(), kGrain, [&](std::int64_t begin, std::int64_t end) {
    const float factor = factor_to_norm(*ctx.step_state, sum.data<double>()[0], limit);
    kernels().elementwise.scale(gradient.data<float>() + begin, factor, end - begin);
  });
}

void commit_state(Context& ctx, float keep, const Tensor& proposed, const Tensor& value) {
  on_this_thread(ctx, [&] {
    float *more = proposed.data<float>(), *to = value.data<float>();
    for (std::int64_t i = 0; i < value.elements(); ++i) {
      if (ctx.step_state->finite != 0) to[i] = keep * to[i] + more[i];
      more[i] = 0.0f;
    }
  });
}

void add_sum_of_squares(Context& ctx, const Tensor& x, std::int64_t first, const Tensor& limbs) {
  const std::int64_t n = x.elements(), units = units_of_squares(first, n);
  const std::int64_t begin = -(first % kSquaresUnit);  // of the first unit in x
  std::vector<double> sums(ctx.dry ? 0 : static_cast<std::size_t>(units));
  parallel_ranges(ctx, units, kGrain / kSquaresUnit, [&](std::int64_t from, std::int64_t to) {
    for (std::int64_t unit = from; unit < to; ++unit) {
      const std::int64_t at = std::max<std::int64_t>(begin + unit * kSquaresUnit, 0);
      const std::int64_t end = std::min(begin + (unit + 1) * kSquaresUnit, n);
      sums[static_cast<std::size_t>(unit)] =
          kernels().update.sum_of_squares(x.data<float>() + at, end - at);
    }
  });
  ExactSum exact;
  for (const double sum : sums) exact.add(sum);
  on_this_thread(ctx, [&] {
    for (int i = 0; i < kExactLimbs; ++i) {
      limbs.data<std::int64_t>()[i] += exact.limbs()[static_cast<std::size_t>(i)];
    }
  });
}

void round_exact_sum(Context& ctx, const Tensor& limbs, const Tensor& sums) {
  on_this_thread(ctx, [&] {
    for (std::int64_t i = 0; i < sums.elements(); ++i) {
      sums.data<double>()[i] = take_exact_value(limbs.data<std::int64_t>() + i * kExactLimbs);
    }
  });
}

void finish_gradient_norm(Context& ctx, const Tensor& sum, float clip, const Tensor& norm) {
  StepState& state = *ctx.step_state;
  double value = 0.0;
  on_this_thread(ctx, [&] {
    state.squares_exponent = exponent_above(sum.data<double>()[0]);
    value = std::sqrt(sum.data<double>()[0]) *
            static_cast<double>(state.gradient_scale / state.loss_scale);
    norm.data<double>()[0] = value;
  });
  state.finite = std::isfinite(value) ? 1 : 0;
  state.updates += state.finite;
  state.rate_squares += square_of_rate(state);
  const bool clips = clip > 0.0f && value > static_cast<double>(clip);
  state.clip_factor = clips ? static_cast<float>(static_cast<double>(clip) / value) : 1.0f;
}

void update_loss_scale(Context& ctx, const LossScaling& rule) {
  next_loss_scale(rule, *ctx.step_state);
}

}  // namespace trireme::ops::cpu
