// Batch norm (Ioffe and Szegedy 2015): over the rows of x (rows, C), a channel at a time. For
// pictures the rows are all pixels of a micro-batch.
#pragma once

#include "trireme/ops/elementwise.h"

namespace trireme::ops {

// moments (2, C) fp32: the means of the columns of x (rows, C), then their variances (divided by
// the number of rows, not by one less).
void batch_moments(Context& ctx, const Tensor& x, const Tensor& moments);
// moments (2, C) = those of all rows together, from the moments of parts with equally many rows:
// parts (P, 2, C), both fp32. The order of the sums is that of the parts.
void merge_batch_moments(Context& ctx, const Tensor& parts, const Tensor& moments);

// A batch norm whose output may get something added (the other path of a residual block) and is
// clamped. moments (2, C) fp32: those of the batch in training, running ones otherwise. weight and
// bias are (C).
struct BatchNorm {
  Tensor moments, weight, bias;
  float epsilon = 1e-5f;
  Clamp clamp;
};

// y (rows, C) = clamp((x - mean) / sqrt(variance + epsilon) * weight + bias + residual). residual
// (rows, C) may be undefined. y may be x or residual.
void batch_norm(Context& ctx, const BatchNorm& norm, const Tensor& x, const Tensor& residual,
                const Tensor& y);
// The backward is in two parts, so that ranks that share moments can add up their sums in between.
// g is the gradient of what was clamped: dy where the clamp let it pass, else 0. y is batch_norm's
// output. It may be undefined if there was no residual: then it is made again from x.
//
// sums (2, C) fp32: the sum of g over the rows, which is the gradient of bias, then the sum of
// g (x - mean) / sqrt(variance + epsilon), which is the gradient of weight.
void batch_norm_backward_sums(Context& ctx, const BatchNorm& norm, const Tensor& dy,
                              const Tensor& x, const Tensor& y, const Tensor& sums);
// dx = the gradient of x, through the moments as well. `sums` are those of all `count` rows that
// the moments are from. dresidual = g; it may be undefined or dy. dx may be dy.
void batch_norm_backward(Context& ctx, const BatchNorm& norm, const Tensor& dy, const Tensor& x,
                         const Tensor& y, const Tensor& sums, std::int64_t count,
                         const Tensor& dresidual, const Tensor& dx);

}  // namespace trireme::ops
