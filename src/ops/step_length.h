// What optimizers compute of single numbers, the same on every device.
#pragma once

#include <cmath>

#include "trireme/base/on_device.h"
#include "trireme/ops/adafactor.h"
#include "trireme/ops/averages.h"
#include "trireme/ops/lengths.h"
#include "trireme/ops/update.h"

namespace trireme::ops {

TRIREME_ON_DEVICE inline float gradient_factor(const StepState& state) {
  return state.gradient_scale / state.loss_scale * state.clip_factor;
}

// Returns the least e with sum < 2^e; 0 if the sum is 0 or not finite.
TRIREME_ON_DEVICE inline int exponent_above(double sum) {
  int exponent = 0;
  if (sum < INFINITY) frexp(sum, &exponent);
  return exponent;
}

// What an update adds to StepState::rate_squares.
TRIREME_ON_DEVICE inline double square_of_rate(const StepState& state) {
  const auto rate = static_cast<double>(state.learning_rate);
  return state.finite != 0 ? rate * rate : 0.0;
}

// The numbers of a schedule-free step.
struct ScheduleFreeFactors {
  float gradient_factor, inverse_root_bias2, learning_rate;
  float part;   // of the gap between x and y: 1 - beta1
  float share;  // of this step's z in x
};
TRIREME_ON_DEVICE inline ScheduleFreeFactors schedule_free_factors(const ScheduleFree& rule,
                                                                   const StepState& state) {
  const double bias2 =
      1.0 - pow(static_cast<double>(rule.beta2), static_cast<double>(state.updates));
  const auto rate = static_cast<double>(state.learning_rate);
  return {gradient_factor(state), static_cast<float>(1.0 / sqrt(bias2)),
          state.learning_rate * rule.rate, 1.0f - rule.beta1,
          state.rate_squares > 0.0 ? static_cast<float>(rate * rate / state.rate_squares) : 1.0f};
}

// What step_length sets.
TRIREME_ON_DEVICE inline float length_of_step(const StepLength& rule, const StepState& state,
                                              double squares_of_master,
                                              double squares_of_direction) {
  const auto learning_rate = static_cast<double>(state.learning_rate * rule.rate);
  const double master = sqrt(squares_of_master), direction = sqrt(squares_of_direction);
  const bool both = master > 0.0 && direction > 0.0;
  const auto largest = static_cast<double>(rule.largest);
  if (rule.kind == StepLength::Kind::kTrust) {
    const double trust = both ? master / direction : 1.0;
    return static_cast<float>(learning_rate * (trust < largest ? trust : largest));
  }
  if (rule.kind == StepLength::Kind::kOfGradient) {
    const double gradient = direction * static_cast<double>(gradient_factor(state));
    const double whole = gradient + static_cast<double>(rule.weight_decay) * master;
    return both ? static_cast<float>(static_cast<double>(rule.coefficient) * master / whole) : 1.0f;
  }
  constexpr double kLeast = 1e-3;
  const double root = sqrt(static_cast<double>(rule.elements));
  const double least_of_two = 1.0 / sqrt(static_cast<double>(state.updates));
  const double relative = learning_rate < least_of_two ? learning_rate : least_of_two;
  const double size = master / root > kLeast ? master / root : kLeast;
  const double excess = direction / root / largest;
  return static_cast<float>(relative * size / (excess > 1.0 ? excess : 1.0));
}

// The share of this step's weights in their average.
TRIREME_ON_DEVICE inline float share_of_weights(const WeightAverage& rule, const StepState& state) {
  if (state.averaged == 0) return 1.0f;
  if (state.step <= rule.from) return 0.0f;
  const float equal = 1.0f / static_cast<float>(state.averaged), least = 1.0f - rule.decay;
  return equal > least ? equal : least;
}

TRIREME_ON_DEVICE inline bool counts_in_average(const WeightAverage& rule, const StepState& state) {
  return state.finite != 0 && state.step > rule.from;
}

// The limit of a gradient's elements as they lie in memory.
TRIREME_ON_DEVICE inline float limit_in_memory(const StepState& state, float limit) {
  return limit * state.loss_scale / state.gradient_scale;
}

// What clip_to_norm multiplies a gradient by.
TRIREME_ON_DEVICE inline float factor_to_norm(const StepState& state, double sum, float limit) {
  const double norm = sqrt(sum) * static_cast<double>(state.gradient_scale / state.loss_scale);
  const double factor = static_cast<double>(limit) / norm;
  return norm < INFINITY && factor < 1.0 ? static_cast<float>(factor) : 1.0f;
}

// The two numbers into which add_squares_of_lines divides a square below 2^exponent. What is added
// and taken away again rounds to multiples of 2^-50 and 2^-80 of that.
struct SquareParts {
  double high, low;
  TRIREME_ON_DEVICE explicit SquareParts(int exponent)
      : high(ldexp(1.5, exponent + 2)), low(ldexp(1.5, exponent - 28)) {}
};

// The share of the new squares in Adafactor's averages.
TRIREME_ON_DEVICE inline double share_of_new(const Adafactor& rule, const StepState& state) {
  return pow(static_cast<double>(state.updates), static_cast<double>(rule.decay));
}

// A line's average after the sum of `count` squares in memory.
TRIREME_ON_DEVICE inline float next_average(float average, double share, double sum, double count,
                                            float factor) {
  const double f = static_cast<double>(factor), old = static_cast<double>(average);
  return static_cast<float>(old + share * (sum * f * f / count - old));
}

}  // namespace trireme::ops
