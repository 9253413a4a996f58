// A linear layer in training whose three products are of e4m3 (trireme/ops/block_scaled.h).
#pragma once

#include <functional>
#include <vector>

#include "trireme/nn/tape.h"

namespace trireme::nn {

struct ScaledLinear {
  std::vector<Parameter*> weights;  // side_by_side_weight gives (out, in), bf16
  Tensor bias;                      // (out), added to y; or undefined
  std::vector<const Parameter*> parameters;
  // Hands x's gradient dx (rows, in), which may be overwritten, to the tape.
  std::function<void(Tape&, const Tensor& dx)> input_gradient;
  // Adds to the bias's gradient; or empty.
  Tape::WeightGradient bias_gradient = {};
};

// Records y (rows, out) = x (rows, in) weight^T + bias, which gives `source` its gradient. Where
// the weight trains, and nothing makes x again, it keeps x's transposed copy in e4m3 instead of x.
Value record_scaled_linear(Tape& tape, const Value& x, const Value& source, ScaledLinear linear);

// Throws ConfigError if the packed matrix of these has no whole blocks on this rank.
void check_whole_blocks(const std::vector<Parameter*>& weights);

}  // namespace trireme::nn
