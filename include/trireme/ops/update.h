// Optimizer steps on flat fp32 shards. They read the learning rate, the scales and the finite flag
// from the context's StepState, and change nothing if finite == 0.
#pragma once

#include <span>

#include "trireme/ops/context.h"

namespace trireme::ops {

// Master values are fp32. They may also be split where a step takes `weights` that follow them:
// then `master` has the low 16 bits (uint16) of values whose upper part are the weights (bf16),
// read and written with them (SplitFloat). That has the same bits but for the weights at ties,
// which it rounds away from zero and not to even. adamw_direction and the schedule-free steps take
// fp32 alone.
//
// Weights decay in one of two ways. Decoupled: a step takes learning_rate * weight_decay of the
// weight away. Coupled: l2_penalty * master is added to g, and goes through averages and momentum
// with it. A rule's learning rate is StepState::learning_rate * rate.

struct AdamW {
  float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;
  float weight_decay = 0.0f;
  float l2_penalty = 0.0f;
  float rate = 1.0f;
};
// Loshchilov and Hutter 2019; with l2_penalty alone it is Adam, Kingma and Ba 2015. t is
// StepState::updates, g is gradient * gradient_scale / loss_scale * clip_factor. master, exp_avg,
// exp_avg_sq and gradient are fp32 (n). weights (n), fp32, bf16 or fp16, receives the new master
// values; it may be master itself.
void adamw_step(Context& ctx, const AdamW& rule, const Tensor& master, const Tensor& gradient,
                const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& weights);

struct AdamWPart {
  AdamW rule;
  Tensor master, gradient, exp_avg, exp_avg_sq, weights;
};
// Does the same with each of the parts, which lie apart, with the same bits. A GPU takes many of
// them at once.
void adamw_step(Context& ctx, std::span<const AdamWPart> parts);

struct Sgd {
  float momentum = 0.0f;
  float weight_decay = 0.0f;
  float l2_penalty = 0.0f;
  bool nesterov = false;
  float rate = 1.0f;
};
// velocity = momentum * velocity + g; master -= learning_rate * (d + weight_decay * master), where
// d is the velocity, or with nesterov g + momentum * velocity (Sutskever et al., "On the importance
// of initialization and momentum in deep learning", 2013). velocity may be undefined if momentum
// is 0. Where `length` (1) fp32 is defined, it multiplies g first, l2_penalty included.
void sgd_step(Context& ctx, const Sgd& rule, const Tensor& master, const Tensor& gradient,
              const Tensor& velocity, const Tensor& weights, const Tensor& length = {});

struct Lion {
  float beta1 = 0.9f, beta2 = 0.99f;
  float weight_decay = 0.0f;
  float rate = 1.0f;
};
// Chen et al., "Symbolic discovery of optimization algorithms", 2023. master -= learning_rate *
// (sign(beta1 * exp_avg + (1 - beta1) * g) + weight_decay * master), then exp_avg = beta2 * exp_avg
// + (1 - beta2) * g. sign(0) is 0, and NaN stays NaN. Tensors as in adamw_step.
void lion_step(Context& ctx, const Lion& rule, const Tensor& master, const Tensor& gradient,
               const Tensor& exp_avg, const Tensor& weights);

// The first half of an AdamW step whose length depends on the whole parameter: direction = m /
// (sqrt(v) + epsilon) + weight_decay * master, with the corrected averages m and v of adamw_step.
// direction (n) fp32 may be gradient itself; it is 0 if finite == 0. AdamW::rate is not read.
void adamw_direction(Context& ctx, const AdamW& rule, const Tensor& master, const Tensor& gradient,
                     const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& direction);

struct ScheduleFree {
  float beta1 = 0.9f, beta2 = 0.999f, epsilon = 1e-8f;
  float weight_decay = 0.0f;
  float rate = 1.0f;
};
// Defazio et al., "The road less scheduled", 2024, with AdamW's steps. master is x, the average of
// the points z that steps lead to; gap (n) fp32 is z - x, zero at first; gradients are those at y =
// x + (1 - beta1) * gap, which is what weights receive. Each step counts in x by its squared
// learning rate. The other tensors as in adamw_step; weights is not master.
void schedule_free_step(Context& ctx, const ScheduleFree& rule, const Tensor& master,
                        const Tensor& gradient, const Tensor& gap, const Tensor& exp_avg_sq,
                        const Tensor& weights);
// weights = y.
void schedule_free_weights(Context& ctx, const ScheduleFree& rule, const Tensor& master,
                           const Tensor& gap, const Tensor& weights);

struct Momentum {
  float momentum = 0.95f;
  bool nesterov = true;
};
// The first half of a step along directions that other operations change in between. average =
// momentum * average + (1 - momentum) * g; direction is the average, or with nesterov momentum *
// average + (1 - momentum) * g. average and gradient are fp32 (n). direction (n) is fp32, bf16 or
// fp16, and may be gradient itself; it is 0 if finite == 0.
void average_gradient(Context& ctx, const Momentum& rule, const Tensor& gradient,
                      const Tensor& average, const Tensor& direction);

struct StepAlong {
  float weight_decay = 0.0f;
  float rate = 1.0f;
};
// The second half: master -= learning_rate * (direction + weight_decay * master).
// direction (n) is fp32, bf16 or fp16; the others as in adamw_step. Where `length` (1) fp32 is
// defined, it multiplies the direction in place of the learning rate.
void step_along(Context& ctx, const StepAlong& rule, const Tensor& master, const Tensor& direction,
                const Tensor& weights, const Tensor& length = {});

// Dynamic loss scaling (Micikevicius et al., "Mixed precision training", 2018). fp16 reaches from
// 6e-8 to 65504, so the backward multiplies the loss's gradient by a scale, and update_loss_scale
// searches for a good one. Losses here are sums over tokens, and a token's gradient by a logit is
// at most 1, so the scale applies to the loss of one token: a scale of 2^15 here corresponds to
// 2^15 x tokens in programs whose losses are means.
struct LossScaling {
  float initial = 1024.0f;  // small models overflow between 2^12 and 2^14 at their first steps
  float smallest = 1.0f;
  float largest = 32768.0f;  // the next power of two is infinite in fp16
  std::int32_t interval = 2000;

  static LossScaling fixed(float scale) { return {scale, scale, scale}; }
  bool is_fixed() const { return smallest == largest; }
};
// Call it after the optimizer. Halves StepState::loss_scale, not below `smallest`, if the step was
// not finite. Doubles it, not above `largest`, after `interval` finite steps with the same scale.
void update_loss_scale(Context& ctx, const LossScaling& rule);
// Call it after the optimizer, before update_loss_scale. x (n) fp32 is what few bits have lost of
// the step's gradients (ops::quantize), which goes with those of the next step. So it is multiplied
// by what the loss scale will be multiplied by. It becomes 0 if the step was not finite: gradients
// that nobody takes a step along may have lost anything.
void carry_over(Context& ctx, const LossScaling& rule, const Tensor& x);

}  // namespace trireme::ops
