// Depthwise convolutions of 3 x 3 with a stride of 1 or 2 between batch norms, as MobileNetV2's
// blocks have them. A GPU applies the norm before while it reads the convolution's input, and sums
// up what the norms need of the results while it writes them.
#pragma once

#include "trireme/ops/batch_norm.h"
#include "trireme/ops/convolution.h"

namespace trireme::ops {

// Whether these operations take less time than the norms and the convolution one after the other.
bool depthwise_takes_norms(const Context& ctx, const ConvolutionShape& shape);

// y = convolution of what batch_norm makes of x (shape.input()), and moments (2, C) fp32 = those of
// y. `moments` may be undefined. Without norm.moments there is no norm before.
void normed_depthwise(Context& ctx, const ConvolutionShape& shape, const BatchNorm& norm,
                      const Tensor& x, const Tensor& weight, const Tensor& y,
                      const Tensor& moments);

// Its gradients, which are either dnormed and sums, or dweight, or all of them with the same bits;
// the others are undefined. dnormed (shape.input()) = the gradient of what batch_norm made of x,
// sums (2, C) fp32 = those of batch_norm_backward_sums for it, dweight (fp32) += the gradient of
// weight. For dweight alone weight may be undefined.
void normed_depthwise_backward(Context& ctx, const ConvolutionShape& shape, const BatchNorm& norm,
                               const Tensor& dy, const Tensor& x, const Tensor& weight,
                               const Tensor& dnormed, const Tensor& sums, const Tensor& dweight);

}  // namespace trireme::ops
