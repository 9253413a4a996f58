// How long gradients, parameters and their steps are, and limits of gradients. g is that of
// trireme/ops/update.h.
#pragma once

#include <limits>
#include <span>

#include "trireme/ops/context.h"

namespace trireme::ops {

// How far the step of a whole parameter goes.
struct StepLength {
  enum class Kind {
    // learning_rate * |master| / |direction|, where the quotient is at most `largest`, and 1 if a
    // norm is 0: LAMB, You et al., "Large batch optimization for deep learning", 2020.
    kTrust,
    // A factor of the gradient, for sgd_step: coefficient * |master| / (|g| + weight_decay *
    // |master|), and 1 if a norm is 0; direction is the gradient as it lies in memory. LARS, You,
    // Gitman and Ginsburg, "Large batch training of convolutional networks", 2017.
    kOfGradient,
    // min(learning_rate, 1 / sqrt(t)) * max(0.001, rms(master)) / max(1, rms(direction) /
    // largest), t = StepState::updates: Adafactor (trireme/ops/adafactor.h).
    kRelative,
  };
  Kind kind = Kind::kTrust;
  float rate = 1.0f;
  float largest = std::numeric_limits<float>::infinity();
  float coefficient = 0.001f;
  float weight_decay = 0.0f;
  std::int64_t elements = 1;  // of the parameter
};
// Sets length (1) fp32. squares (2) fp64: the sums of the squares of master and of direction.
void step_length(Context& ctx, const StepLength& rule, const Tensor& squares, const Tensor& length);

// y (n) = x (n) / (sqrt(sum) + epsilon). x is fp32, sum (1) fp64, y fp32, bf16 or fp16; y may be x.
void divide_by_root(Context& ctx, const Tensor& x, const Tensor& sum, float epsilon,
                    const Tensor& y);

// limbs (kExactLimbs) int64, an exact sum (trireme/base/exact_sum.h), += the squares of x (n) fp32.
// x begins with element `first` of memory that is divided into units of kSquaresUnit elements. What
// lies in a unit is added in double, in a fixed order, and the units exactly. So parts of x that
// are cut at units, added in any order, on any ranks and with any threads, give the same sum. NaN
// and infinity in x make the sum not finite.
inline constexpr std::int64_t kSquaresUnit = 256;
void add_sum_of_squares(Context& ctx, const Tensor& x, std::int64_t first, const Tensor& limbs);

struct SquaresPart {
  Tensor x;
  std::int64_t first = 0;
};
// Adds the squares of all parts to the same sum. A GPU takes many of them at once.
void add_sum_of_squares(Context& ctx, std::span<const SquaresPart> parts, const Tensor& limbs);

// sums (n) fp64 = the values of the exact sums in limbs (n * kExactLimbs) int64, whose contents are
// undefined afterwards.
void round_exact_sum(Context& ctx, const Tensor& limbs, const Tensor& sums);

// sum (1) fp64 is the sum of the squares of all gradients. Sets norm (1) fp64 = sqrt(sum) *
// gradient_scale / loss_scale, StepState::finite = whether the norm is finite, and
// StepState::clip_factor = min(1, clip / norm), or 1 if clip is 0 (no clipping). If the norm is
// finite, sum < 2^StepState::squares_exponent, StepState::updates grows by 1 for the update that
// the optimizer makes next, and rate_squares by the square of its learning rate.
void finish_gradient_norm(Context& ctx, const Tensor& sum, float clip, const Tensor& norm);

// Limits each element of g (gradient * gradient_scale / loss_scale) to [-limit, limit]. gradient
// (n) fp32 changes. NaN stays NaN.
void clip_values(Context& ctx, const Tensor& gradient, float limit);
// Multiplies gradient (n) fp32 by limit / norm where that is below 1, with norm = sqrt(sum) *
// gradient_scale / loss_scale. sum (1) fp64, of the squares of the whole parameter's gradients. One
// that is not finite changes nothing.
void clip_to_norm(Context& ctx, const Tensor& gradient, const Tensor& sum, float limit);

}  // namespace trireme::ops
