// Optimizer steps on flat fp32 shards. All read learning rate, scales and the finite flag from the
// context's StepState; with finite == 0 they change nothing.
#pragma once

#include "trireme/ops/context.h"

namespace trireme::ops {

struct AdamW {
  float beta1 = 0.9f, beta2 = 0.95f, epsilon = 1e-8f;
  float weight_decay = 0.0f;
};
// Loshchilov and Hutter 2019, with StepState::updates as its t. g = gradient * gradient_scale / loss_scale * clip_factor; master,
// exp_avg, exp_avg_sq and gradient are fp32 (n); weights (n), fp32, bf16 or fp16, receives the new
// master values (it may be master itself).
void adamw_step(Context& ctx, const AdamW& rule, const Tensor& master, const Tensor& gradient,
                const Tensor& exp_avg, const Tensor& exp_avg_sq, const Tensor& weights);

struct Sgd {
  float momentum = 0.0f;
  float weight_decay = 0.0f;  // decoupled, as in AdamW
};
// velocity = momentum * velocity + g; master -= learning_rate * (velocity + weight_decay * master).
// velocity may be undefined where momentum is 0.
void sgd_step(Context& ctx, const Sgd& rule, const Tensor& master, const Tensor& gradient,
              const Tensor& velocity, const Tensor& weights);

// sum (1) fp64 += the squares of x (n) fp32, in double, split in a way that does not follow the
// thread count. NaN and infinity show in the sum.
void add_sum_of_squares(Context& ctx, const Tensor& x, const Tensor& sum);

// From the sum of the squares of all gradients (1) fp64: norm (1) fp64 = sqrt(sum) *
// gradient_scale / loss_scale. Sets StepState::finite, and clip_factor = min(1, clip / norm); clip
// 0 leaves the norm as it is. Where the norm is finite, counts the update that the optimizer makes
// next in StepState::updates.
void finish_gradient_norm(Context& ctx, const Tensor& sum, float clip, const Tensor& norm);

// Dynamic loss scaling (Micikevicius et al., "Mixed precision training", 2018). fp16 ends at 65504
// and at 6e-8, so the loss's gradient goes back through the model multiplied by a scale that is
// searched for. Losses are sums over tokens, each of which has a gradient of at most 1 by a logit,
// so the scale is that of a token's loss: a scale of 2^15 here is one of 2^15 x tokens where losses
// are means.
struct LossScaling {
  float initial = 1024.0f;  // small models overflow between 2^12 and 2^14 at their first steps
  float smallest = 1.0f;
  float largest = 32768.0f;  // the next power of two is infinite in fp16
  std::int32_t interval = 2000;

  static LossScaling fixed(float scale) { return {scale, scale, scale}; }
  bool is_fixed() const { return smallest == largest; }
};
// Behind the optimizer: halves StepState::loss_scale, not below `smallest`, where the step was not
// finite; doubles it, not above `largest`, when it has been good for `interval` steps.
void update_loss_scale(Context& ctx, const LossScaling& rule);

}  // namespace trireme::ops
