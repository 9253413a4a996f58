// The rule of dynamic loss scaling, the same on every device.
#pragma once

#include "trireme/base/on_device.h"
#include "trireme/ops/update.h"

namespace trireme::ops {

// Changes the state of a step as update_loss_scale does.
TRIREME_ON_DEVICE inline void next_loss_scale(const LossScaling& rule, StepState& state) {
  if (state.finite == 0) {
    const float half = state.loss_scale / 2.0f;
    state.loss_scale = half > rule.smallest ? half : rule.smallest;
    state.good_steps = 0;
  } else if (++state.good_steps >= rule.interval) {
    const float twice = state.loss_scale * 2.0f;
    state.loss_scale = twice < rule.largest ? twice : rule.largest;
    state.good_steps = 0;
  }
}

// What carry_over multiplies by.
TRIREME_ON_DEVICE inline float carried_share(const LossScaling& rule, const StepState& state) {
  if (state.finite == 0) return 0.0f;
  StepState next = state;
  next_loss_scale(rule, next);
  return next.loss_scale / state.loss_scale;
}

}  // namespace trireme::ops
