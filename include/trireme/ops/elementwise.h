// Elementwise operations. All tensors of a call have the same number of elements, unless shapes say
// otherwise. Types are fp32, bf16 or fp16; arithmetic is in fp32.
#pragma once

#include <limits>

#include "trireme/ops/context.h"

namespace trireme::ops {

// x = value. Also for fp64, int64, uint16 and uint8.
void fill(Context& ctx, const Tensor& x, float value);
// y = x, converted to y's type (rounds to nearest even). A plain copy if the types are equal.
void cast(Context& ctx, const Tensor& x, const Tensor& y);
// y = a + b; y may be a or b.
void add(Context& ctx, const Tensor& a, const Tensor& b, const Tensor& y);
// y += factor * x. y is fp32.
void add_scaled(Context& ctx, const Tensor& x, float factor, const Tensor& y);
// x *= factor.
void scale(Context& ctx, const Tensor& x, float factor);
// x (rows, columns) += bias (columns).
void add_bias(Context& ctx, const Tensor& x, const Tensor& bias);
// sums (columns), fp32, += the column sums of x (rows, columns), added in a fixed order.
void add_column_sums(Context& ctx, const Tensor& x, const Tensor& sums);

// GELU, tanh form (Hendrycks and Gimpel 2016): y = x/2 (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))).
void gelu(Context& ctx, const Tensor& x, const Tensor& y);
// dx = dy * gelu'(x); dx may be dy.
void gelu_backward(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx);

// GELU as it is defined: y = x/2 (1 + erf(x / sqrt(2))).
void gelu_erf(Context& ctx, const Tensor& x, const Tensor& y);
// dx may be dy.
void gelu_erf_backward(Context& ctx, const Tensor& x, const Tensor& dy, const Tensor& dx);

// The range that an operation's result is cut to. NaN stays NaN.
struct Clamp {
  float low = -std::numeric_limits<float>::infinity();
  float high = std::numeric_limits<float>::infinity();

  bool cuts() const { return low > Clamp().low || high < Clamp().high; }
};
inline constexpr Clamp kNoClamp;
inline constexpr Clamp kRelu = {0.0f, std::numeric_limits<float>::infinity()};
inline constexpr Clamp kRelu6 = {0.0f, 6.0f};

// y = min(max(x, low), high); y may be x.
void clamp(Context& ctx, const Tensor& x, const Clamp& range, const Tensor& y);
// dx = dy where low < y < high, else 0. y is clamp's result, or its input. dx may be dy.
void clamp_backward(Context& ctx, const Tensor& y, const Tensor& dy, const Clamp& range,
                    const Tensor& dx);

// SwiGLU (Shazeer 2020): a row of gate_up (rows, 2 * width) holds gate, then up.
// y (rows, width) = gate * sigmoid(gate) * up.
void swiglu(Context& ctx, const Tensor& gate_up, const Tensor& y);
// dgate_up may be gate_up.
void swiglu_backward(Context& ctx, const Tensor& gate_up, const Tensor& dy, const Tensor& dgate_up);

// GeGLU (Shazeer 2020): the same with gelu(gate) in place of gate * sigmoid(gate).
void geglu(Context& ctx, const Tensor& gate_up, const Tensor& y);
// dgate_up may be gate_up.
void geglu_backward(Context& ctx, const Tensor& gate_up, const Tensor& dy, const Tensor& dgate_up);

// The place of a dropout's rows in the data, independent of ranks and micro-batches: row i is
// position (first_row + i) % length of sample samples[(first_row + i) / length].
struct DropoutPlace {
  std::uint32_t layer = 0;  // tells the dropouts of a model apart
  std::int64_t first_row = 0;
  std::int64_t length = 1;  // positions per sample
  Tensor samples;           // int64, global sample numbers of the micro-batch
};
// y = x / (1 - rate) if the Philox draw of (StepState::random_key, layer, sample, position, column)
// exceeds rate, else 0. x, y (rows, columns); y may be x. The same call is its own backward: it
// makes dx from dy.
void dropout(Context& ctx, const Tensor& x, float rate, const DropoutPlace& place, const Tensor& y);

}  // namespace trireme::ops
