// Convolution over pictures (N, H, W, C), channels last, as deep learning has it: a correlation,
// without turning the kernel.
#pragma once

#include <string_view>

#include "trireme/ops/context.h"

namespace trireme::ops {

// Weights are (out_channels, kernel_height, kernel_width, in_channels / groups). Output channels
// fall into `groups` equal runs, each of which sees the run of input channels of the same number.
struct ConvolutionShape {
  std::int64_t batch = 0, height = 0, width = 0;  // of the input
  std::int64_t in_channels = 0, out_channels = 0;
  std::int64_t kernel_height = 1, kernel_width = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;  // zeros on each of the four sides
  std::int64_t groups = 1;

  auto operator<=>(const ConvolutionShape&) const = default;

  std::int64_t out_height() const { return (height + 2 * padding - kernel_height) / stride + 1; }
  std::int64_t out_width() const { return (width + 2 * padding - kernel_width) / stride + 1; }
  std::int64_t out_pixels() const { return batch * out_height() * out_width(); }
  std::int64_t taps() const { return kernel_height * kernel_width; }
  std::int64_t group_channels() const { return in_channels / groups; }
  // Whether each channel is convolved by itself.
  bool depthwise() const { return groups == in_channels && groups == out_channels; }
  // Whether it is a product of the pixels with the weights.
  bool pointwise() const { return taps() == 1 && stride == 1 && padding == 0 && groups == 1; }

  Shape input() const { return {batch, height, width, in_channels}; }
  Shape output() const { return {batch, out_height(), out_width(), out_channels}; }
  Shape weight() const { return {out_channels, kernel_height, kernel_width, group_channels()}; }
};

// y = x * weight + bias. x of shape.input(), y of shape.output(), weight of shape.weight(), bias
// (out_channels) or undefined. x, weight and y have one type: fp32, bf16 or fp16; sums are fp32.
void convolution(Context& ctx, const ConvolutionShape& shape, const Tensor& x, const Tensor& weight,
                 const Tensor& bias, const Tensor& y);
// dx = the gradient of x.
void convolution_backward_input(Context& ctx, const ConvolutionShape& shape, const Tensor& dy,
                                const Tensor& weight, const Tensor& dx);
// dweight, dbias (fp32) += the gradients of weight and bias. Either may be undefined.
void convolution_backward_weight(Context& ctx, const ConvolutionShape& shape, const Tensor& dy,
                                 const Tensor& x, const Tensor& dweight, const Tensor& dbias);
// dx = the gradient of x, and dweight (fp32) += that of weight, with the bits of the two calls
// above.
void convolution_backward(Context& ctx, const ConvolutionShape& shape, const Tensor& dy,
                          const Tensor& x, const Tensor& weight, const Tensor& dx,
                          const Tensor& dweight);
// Whether that takes less time than two calls.
bool convolution_backward_is_one_pass(const Context& ctx, const ConvolutionShape& shape);

// The library that computes convolutions on this device where it supports them, in a few words
// ("cuDNN 9.19.0"), or "matrix products".
std::string_view convolution_description(const Context& ctx);

}  // namespace trireme::ops
