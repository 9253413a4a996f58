// Averages over updates: of weights, and of values without gradient.
#pragma once

#include "trireme/ops/context.h"

namespace trireme::ops {

// The share of the n-th value is 1 / n, or 1 - decay where that is more: with decay 1 all weigh
// alike (Izmailov et al., "Averaging weights leads to wider optima and better generalization",
// 2018).
struct WeightAverage {
  float decay = 0.999f;
  std::int64_t from = 0;  // steps up to this one do not count
  bool operator==(const WeightAverage&) const = default;
};
// Adds 1 to StepState::averaged (n) if the step counts and finite == 1. Before average_weights.
void count_average(Context& ctx, const WeightAverage& rule);
// average (n) fp32 takes in value (n) fp32; it is a copy as long as none counts. Changes nothing if
// finite == 0.
void average_weights(Context& ctx, const WeightAverage& rule, const Tensor& value,
                     const Tensor& average);

// For tensors without gradient: value = keep * value + proposed if finite == 1, and proposed = 0 in
// any case. Both are fp32 of the same number of elements.
void commit_state(Context& ctx, float keep, const Tensor& proposed, const Tensor& value);

}  // namespace trireme::ops
