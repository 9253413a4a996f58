// Fp32 values that lie apart: as weights in bf16 and 16 bits more (SplitFloat).
#pragma once

#include "trireme/ops/context.h"

namespace trireme::ops {

// All tensors of a call have the same number of elements: fp32, bf16 and uint16.

// high and low become those of x.
void split(Context& ctx, const Tensor& x, const Tensor& high, const Tensor& low);
// y becomes what was split, but for NaN, which may be another NaN.
void join(Context& ctx, const Tensor& high, const Tensor& low, const Tensor& y);

}  // namespace trireme::ops
