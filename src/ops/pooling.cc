#include "trireme/ops/pooling.h"

#include <fmt/format.h>

#include "ops/check.h"
#include "ops/device_ops.h"

namespace trireme::ops {
namespace {

void check_pooling(std::string_view op, const PoolingShape& s) {
  TRIREME_CHECK(
      s.batch > 0 && s.height > 0 && s.width > 0 && s.channels > 0 && s.kernel_height > 0 &&
          s.kernel_width > 0 && s.stride > 0 && s.padding >= 0 &&
          2 * s.padding <= s.kernel_height && 2 * s.padding <= s.kernel_width &&
          s.kernel_height <= s.height + 2 * s.padding && s.kernel_width <= s.width + 2 * s.padding,
      fmt::format("{}: input {}, kernel {} x {}, stride {}, padding {}", op, s.input().to_string(),
                  s.kernel_height, s.kernel_width, s.stride, s.padding));
}

void check_pixels(std::string_view op, std::string_view name, const Tensor& x, const Shape& shape) {
  check_floating(op, name, x);
  check_shape(op, name, x, shape);
}

void check_which(std::string_view op, const Tensor& which, const PoolingShape& shape) {
  check_dtype(op, "which", which, {DType::kI32});
  check_shape(op, "which", which, shape.output());
}

}  // namespace

void max_pooling(Context& ctx, const PoolingShape& shape, const Tensor& x, const Tensor& y,
                 const Tensor& which) {
  check_pooling("max_pooling", shape);
  check_pixels("max_pooling", "x", x, shape.input());
  check_pixels("max_pooling", "y", y, shape.output());
  check_which("max_pooling", which, shape);
  dispatch(TRIREME_OP(max_pooling), ctx, shape, x, y, which);
}

void max_pooling_backward(Context& ctx, const PoolingShape& shape, const Tensor& dy,
                          const Tensor& which, const Tensor& dx) {
  check_pooling("max_pooling_backward", shape);
  check_pixels("max_pooling_backward", "dy", dy, shape.output());
  check_which("max_pooling_backward", which, shape);
  check_pixels("max_pooling_backward", "dx", dx, shape.input());
  dispatch(TRIREME_OP(max_pooling_backward), ctx, shape, dy, which, dx);
}

void average_pooling(Context& ctx, const PoolingShape& shape, const Tensor& x, const Tensor& y) {
  check_pooling("average_pooling", shape);
  check_pixels("average_pooling", "x", x, shape.input());
  check_pixels("average_pooling", "y", y, shape.output());
  dispatch(TRIREME_OP(average_pooling), ctx, shape, x, y);
}

void average_pooling_backward(Context& ctx, const PoolingShape& shape, const Tensor& dy,
                              const Tensor& dx) {
  check_pooling("average_pooling_backward", shape);
  check_pixels("average_pooling_backward", "dy", dy, shape.output());
  check_pixels("average_pooling_backward", "dx", dx, shape.input());
  dispatch(TRIREME_OP(average_pooling_backward), ctx, shape, dy, dx);
}

}  // namespace trireme::ops
