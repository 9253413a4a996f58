// What operations on convolutions check and count of a shape.
#pragma once

#include <string_view>

#include "trireme/ops/batch_norm.h"
#include "trireme/ops/convolution.h"

namespace trireme::ops {

// These throw InternalError, which names the operation.
void check_shape_of(std::string_view op, const ConvolutionShape& shape);
// `like` decides the type.
void check_typed(std::string_view op, std::string_view name, const Tensor& x, const Shape& shape,
                 const Tensor& like);
// The norm is for x (rows, C).
void check_norm(std::string_view op, const BatchNorm& norm, const Tensor& x);

double flops_of(const ConvolutionShape& shape);

// All pixels as rows (rows, C).
inline Tensor pixel_rows(const Tensor& x) {
  return x.reshape({x.shape().rows(), x.shape()[-1]});
}

}  // namespace trireme::ops
