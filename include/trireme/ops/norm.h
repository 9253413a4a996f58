// Layer norm (Ba et al. 2016) and RMS norm (Zhang and Sennrich 2019) over the last dimension.
#pragma once

#include <utility>

#include "trireme/ops/context.h"

namespace trireme::ops {

// y (rows, C) = (x - mean) * rstd * weight + bias; mean, rstd (rows) fp32 are saved for the
// backward. bias may be undefined.
void layer_norm(Context& ctx, const Tensor& x, const Tensor& weight, const Tensor& bias,
                float epsilon, const Tensor& y, const Tensor& mean, const Tensor& rstd);
// sum (rows, C) = x + branch, rounded to sum's type, and the layer norm of sum, in one pass over
// memory. The bits are those of ops::add followed by layer_norm.
void add_layer_norm(Context& ctx, const Tensor& x, const Tensor& branch, const Tensor& weight,
                    const Tensor& bias, float epsilon, const Tensor& sum, const Tensor& y,
                    const Tensor& mean, const Tensor& rstd);
// dx = the gradient of x through the norm, plus `residual`, x's gradient from elsewhere, if that is
// defined. They are added in fp32 and rounded once. dx may be residual.
void layer_norm_backward_input(Context& ctx, const Tensor& dy, const Tensor& x,
                               const Tensor& weight, const Tensor& mean, const Tensor& rstd,
                               const Tensor& residual, const Tensor& dx);
// Adds to dweight (C) and dbias (C), fp32, in an order that does not depend on the number of
// threads. Either may be undefined.
void layer_norm_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& mean,
                                const Tensor& rstd, const Tensor& dweight, const Tensor& dbias);
// Does both, with the same bits, and adds to dx_sums (C), fp32, what add_column_sums
// (elementwise.h) of dx would; it may be undefined. A GPU reads dy and x once if all are of one
// type and a row has up to 8192 columns, a multiple of eight. It then reads dx for dx_sums only
// where a row has more than 3072 columns, or in fp32.
void layer_norm_backward(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& weight,
                         const Tensor& mean, const Tensor& rstd, const Tensor& residual,
                         const Tensor& dx, const Tensor& dweight, const Tensor& dbias,
                         const Tensor& dx_sums = {});

// What an RMS norm multiplies by: weight + plus, added in fp32. Gemma stores weights less 1.
struct NormFactor {
  // The constructor is implicit, since most norms have a weight alone.
  NormFactor(Tensor given, float more = 0.0f) : weight(std::move(given)), plus(more) {}
  Tensor weight;  // (C)
  float plus;
};
// y (rows, C) = x * rstd * factor with rstd = 1 / sqrt(mean(x^2) + epsilon); rstd (rows) fp32 is
// saved.
void rms_norm(Context& ctx, const Tensor& x, const NormFactor& factor, float epsilon,
              const Tensor& y, const Tensor& rstd);
// These do for RMS norm what the functions of the same names do for layer norm.
void add_rms_norm(Context& ctx, const Tensor& x, const Tensor& branch, const NormFactor& factor,
                  float epsilon, const Tensor& sum, const Tensor& y, const Tensor& rstd);
void rms_norm_backward_input(Context& ctx, const Tensor& dy, const Tensor& x,
                             const NormFactor& factor, const Tensor& rstd, const Tensor& residual,
                             const Tensor& dx);
void rms_norm_backward_weight(Context& ctx, const Tensor& dy, const Tensor& x, const Tensor& rstd,
                              const Tensor& dweight);
void rms_norm_backward(Context& ctx, const Tensor& dy, const Tensor& x, const NormFactor& factor,
                       const Tensor& rstd, const Tensor& residual, const Tensor& dx,
                       const Tensor& dweight);

}  // namespace trireme::ops
