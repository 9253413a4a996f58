// Pooling over pictures (N, H, W, C), channels last.
#pragma once

#include "trireme/ops/context.h"

namespace trireme::ops {

struct PoolingShape {
  std::int64_t batch = 0, height = 0, width = 0, channels = 0;  // of the input
  std::int64_t kernel_height = 1, kernel_width = 1;
  std::int64_t stride = 1;
  std::int64_t padding = 0;  // on each of the four sides, at most half of the kernel

  auto operator<=>(const PoolingShape&) const = default;

  // One output pixel for the whole picture.
  static PoolingShape global(std::int64_t batch, std::int64_t height, std::int64_t width,
                             std::int64_t channels) {
    return {batch, height, width, channels, height, width, 1, 0};
  }
  std::int64_t out_height() const { return (height + 2 * padding - kernel_height) / stride + 1; }
  std::int64_t out_width() const { return (width + 2 * padding - kernel_width) / stride + 1; }
  Shape input() const { return {batch, height, width, channels}; }
  Shape output() const { return {batch, out_height(), out_width(), channels}; }
};

// y = the largest element of each window; what is outside of the picture does not count. which
// (shape.output(), int32) = its number in the window, row by row: the first of several, and that of
// a NaN if there is one.
void max_pooling(Context& ctx, const PoolingShape& shape, const Tensor& x, const Tensor& y,
                 const Tensor& which);
// dx = the gradient of x.
void max_pooling_backward(Context& ctx, const PoolingShape& shape, const Tensor& dy,
                          const Tensor& which, const Tensor& dx);

// y = the mean of each window; what is outside of the picture counts as zero.
void average_pooling(Context& ctx, const PoolingShape& shape, const Tensor& x, const Tensor& y);
void average_pooling_backward(Context& ctx, const PoolingShape& shape, const Tensor& dy,
                              const Tensor& dx);

}  // namespace trireme::ops
