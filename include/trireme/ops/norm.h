// Layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019) over the last dimension.
#pragma once

#include "trireme/ops/context.h"

namespace trireme::ops {

// y (rows, C) = (x - mean) * rstd * weight + bias; mean, rstd (rows) fp32 are saved for the
// backward. bias may be undefined.
void layer_norm(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                float epsilon, const Tensor& y, const Tensor& mean, const Tensor& rstd);
// The same of sum (rows, C) = x + branch, rounded to sum's type: the bits are those of ops::add and
// layer_norm one after the other, in one pass over memory.
void add_layer_norm(Context& ctx, const Tensor& x, const Tensor& branch, const Tensor& weight,
                    const Tensor& bias, float epsilon, const Tensor& sum, const Tensor& y,
                    const Tensor& mean, const Tensor& rstd);
// dx = the gradient by x, plus `residual`, what else goes to x, where it is defined: added in fp32
// and rounded once. dx may be residual.
void layer_norm_backward_input(Context& ctx, const Tensor& dy, const Tensor& x,
                               const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                               const Tensor& residual, const Tensor& dx);
// dweight (C) and dbias (C), fp32, are added to, in an order that does not follow the thread count.
void layer_norm_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& mean,
                                const Tensor& rstd, const Tensor& dweight, const Tensor& dbias);

// y (rows, C) = x * rstd * weight with rstd = 1 / sqrt(mean(x^2) + epsilon); rstd (rows) fp32 is
// saved.
void rms_norm(Context& ctx, const Tensor& x, const Tensor& weight, float epsilon, const Tensor& y,
              const Tensor& rstd);
// As the namesakes of layer norm.
void add_rms_norm(Context& ctx, const Tensor& x, const Tensor& branch, const Tensor& weight,
                  float epsilon, const Tensor& sum, const Tensor& y, const Tensor& rstd);
void rms_norm_backward_input(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& weight,
                             const Tensor& rstd, const Tensor& residual, const Tensor& dx);
void rms_norm_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& rstd,
                              const Tensor& dweight);

}  // namespace trireme::ops
