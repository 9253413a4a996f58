#include "trireme/ops/convolution.h"

#include <algorithm>
#include <array>
#include <functional>

#include <fmt/format.h>

#include "trireme/ops/elementwise.h"
#include "trireme/ops/matmul.h"
#include "trireme/ops/operation_counts.h"

#include "ops/check.h"
#include "ops/convolution_engine.h"
#include "ops/convolution_shape.h"
#include "ops/device_ops.h"
#include "ops/gpu/workspace.h"

namespace trireme::ops {

void check_shape_of(std::string_view op, const ConvolutionShape& s) {
  TRIREME_CHECK(
      s.batch > 0 && s.height > 0 && s.width > 0 && s.in_channels > 0 && s.out_channels > 0 &&
          s.kernel_height > 0 && s.kernel_width > 0 && s.stride > 0 && s.padding >= 0 &&
          s.groups > 0 && s.in_channels % s.groups == 0 && s.out_channels % s.groups == 0 &&
          s.kernel_height <= s.height + 2 * s.padding && s.kernel_width <= s.width + 2 * s.padding,
      fmt::format("{}: input {}, output channels {}, kernel {} x {}, stride {}, padding {}, "
                  "groups {}",
                  op, s.input().to_string(), s.out_channels, s.kernel_height, s.kernel_width,
                  s.stride, s.padding, s.groups));
}

void check_typed(std::string_view op, std::string_view name, const Tensor& x, const Shape& shape,
                 const Tensor& like) {
  check_floating(op, name, x);
  check_shape(op, name, x, shape);
  check_dtype(op, name, x, {like.dtype()});
}

double flops_of(const ConvolutionShape& s) {
  return 2.0 * static_cast<double>(s.out_pixels()) * static_cast<double>(s.out_channels) *
         static_cast<double>(s.taps() * s.group_channels());
}

namespace {

bool by_library(const Context& ctx, const ConvolutionKind& kind) {
  return ctx.convolution && ctx.convolution->why_not(ctx, kind).empty();
}

void call_library(Context& ctx, const ConvolutionShape& shape, std::string_view name,
                  const std::array<Tensor, 3>& operands, const std::function<void()>& body) {
  if (!ctx.dry && !ctx.times) return body();
  const OperationCall call{
      .name = name,
      .dtype = operands[0].dtype(),
      .sizes = {shape.out_pixels(), shape.out_channels, shape.taps() * shape.group_channels(),
                shape.groups},
      .flops = flops_of(shape),
      .bytes = bytes_of(operands[0]) + bytes_of(operands[1]) + bytes_of(operands[2])};
  count_or_time(ctx, call, body);
}

// A convolution as matrix products. The rows of `patches` are the pixels of the output, and its
// columns are what each of them sees, in the order of the weights. A range of samples at a time, so
// that the patches stay within a few MiB on a CPU.
class Products {
 public:
  Products(Context& ctx, const ConvolutionShape& shape) : ctx_(ctx), shape_(shape) {
    const std::int64_t limit = on_cpu(ctx) ? std::int64_t{1} << 20 : std::int64_t{1} << 25;
    const std::int64_t of_sample =
        shape.out_height() * shape.out_width() * shape.taps() * shape.group_channels();
    samples_ = direct() ? shape.batch : std::clamp<std::int64_t>(limit / of_sample, 1, shape.batch);
  }

  void forward(const Tensor& x, const Tensor& weight, const Tensor& y) {
    for_parts([&](const ConvolutionShape& part, std::int64_t first, std::int64_t end,
                  std::int64_t group) {
      const Tensor patches = direct() ? flat(x) : allocate_patches(part, x.dtype());
      if (!direct()) dispatch(TRIREME_OP(unfold), ctx_, part, x.rows(first, end), group, patches);
      const Tensor out = output_of(part, y.rows(first, end));
      matmul(ctx_, patches, Transpose::kNo, rows_of(weight, group), Transpose::kYes, 0.0f, out);
      put_output(part, out, group, y.rows(first, end));
    });
  }

  void backward_input(const Tensor& dy, const Tensor& weight, const Tensor& dx) {
    for_parts([&](const ConvolutionShape& part, std::int64_t first, std::int64_t end,
                  std::int64_t group) {
      // Several patches add up in a pixel, in fp32.
      const Tensor patches = direct() ? flat(dx) : allocate_patches(part, DType::kF32);
      matmul(ctx_, get_output(part, dy.rows(first, end), group), Transpose::kNo,
             rows_of(weight, group), Transpose::kNo, 0.0f, patches);
      if (!direct()) dispatch(TRIREME_OP(fold), ctx_, part, patches, group, dx.rows(first, end));
    });
  }

  void backward_weight(const Tensor& dy, const Tensor& x, const Tensor& dweight) {
    for_parts([&](const ConvolutionShape& part, std::int64_t first, std::int64_t end,
                  std::int64_t group) {
      const Tensor patches = direct() ? flat(x) : allocate_patches(part, x.dtype());
      if (!direct()) dispatch(TRIREME_OP(unfold), ctx_, part, x.rows(first, end), group, patches);
      matmul(ctx_, get_output(part, dy.rows(first, end), group), Transpose::kYes, patches,
             Transpose::kNo, 1.0f, rows_of(dweight, group));
    });
  }

 private:
  bool direct() const { return shape_.pointwise(); }

  template <class Body>
  void for_parts(const Body& body) {
    for (std::int64_t first = 0; first < shape_.batch; first += samples_) {
      ConvolutionShape part = shape_;
      part.batch = std::min(samples_, shape_.batch - first);
      for (std::int64_t group = 0; group < shape_.groups; ++group) {
        body(part, first, first + part.batch, group);
      }
    }
  }

  static Tensor flat(const Tensor& x) { return x.reshape({x.shape().rows(), x.shape()[-1]}); }

  Tensor allocate_patches(const ConvolutionShape& part, DType dtype) {
    return ctx_.allocate({part.out_pixels(), part.taps() * part.group_channels()}, dtype,
                         MemoryUse::kWorkspace);
  }

  // The weights of a group as a matrix.
  Tensor rows_of(const Tensor& weight, std::int64_t group) const {
    const std::int64_t rows = shape_.out_channels / shape_.groups;
    return weight.reshape({shape_.out_channels, shape_.taps() * shape_.group_channels()})
        .rows(group * rows, (group + 1) * rows);
  }

  // The channels of a group of y lie apart: they are copied, as patches of one pixel.
  ConvolutionShape of_output(const ConvolutionShape& part) const {
    return {part.batch,
            part.out_height(),
            part.out_width(),
            part.out_channels,
            part.out_channels,
            1,
            1,
            1,
            0,
            part.groups};
  }
  Tensor output_of(const ConvolutionShape& part, const Tensor& y) {
    if (shape_.groups == 1) return flat(y);
    return ctx_.allocate({part.out_pixels(), part.out_channels / part.groups}, DType::kF32,
                         MemoryUse::kWorkspace);
  }
  void put_output(const ConvolutionShape& part, const Tensor& out, std::int64_t group,
                  const Tensor& y) {
    if (shape_.groups == 1) return;
    dispatch(TRIREME_OP(fold), ctx_, of_output(part), out, group, y);
  }
  Tensor get_output(const ConvolutionShape& part, const Tensor& dy, std::int64_t group) {
    if (shape_.groups == 1) return flat(dy);
    const Tensor mine = ctx_.allocate({part.out_pixels(), part.out_channels / part.groups},
                                      dy.dtype(), MemoryUse::kWorkspace);
    dispatch(TRIREME_OP(unfold), ctx_, of_output(part), dy, group, mine);
    return mine;
  }

  Context& ctx_;
  const ConvolutionShape& shape_;
  std::int64_t samples_;
};

}  // namespace

void convolution(Context& ctx, const ConvolutionShape& shape, const Tensor& x, const Tensor& weight,
                 const Tensor& bias, const Tensor& y) {
  check_shape_of("convolution", shape);
  check_typed("convolution", "x", x, shape.input(), x);
  check_typed("convolution", "weight", weight, shape.weight(), x);
  check_typed("convolution", "y", y, shape.output(), x);
  if (bias.defined()) check_shape("convolution", "bias", bias, {shape.out_channels});
  const ConvolutionKind kind{shape, x.dtype()};
  if (shape.depthwise()) {
    dispatch(TRIREME_OP(depthwise), {flops_of(shape)}, ctx, shape, x, weight, y);
  } else if (by_library(ctx, kind)) {
    call_library(ctx, shape, "convolution", {x, weight, y},
                 [&] { ctx.convolution->forward(ctx, kind, x, weight, y); });
  } else {
    Products(ctx, shape).forward(x, weight, y);
  }
  if (bias.defined()) add_bias(ctx, pixel_rows(y), bias);
}

void convolution_backward_input(Context& ctx, const ConvolutionShape& shape, const Tensor& dy,
                                const Tensor& weight, const Tensor& dx) {
  check_shape_of("convolution_backward_input", shape);
  check_typed("convolution_backward_input", "dy", dy, shape.output(), dy);
  check_typed("convolution_backward_input", "weight", weight, shape.weight(), dy);
  check_typed("convolution_backward_input", "dx", dx, shape.input(), dy);
  const ConvolutionKind kind{shape, dy.dtype()};
  if (shape.depthwise()) {
    dispatch(TRIREME_OP(depthwise_backward_input), {flops_of(shape)}, ctx, shape, dy, weight, dx);
  } else if (by_library(ctx, kind)) {
    call_library(ctx, shape, "convolution_backward_input", {dy, weight, dx},
                 [&] { ctx.convolution->backward_input(ctx, kind, dy, weight, dx); });
  } else {
    Products(ctx, shape).backward_input(dy, weight, dx);
  }
}

void convolution_backward_weight(Context& ctx, const ConvolutionShape& shape, const Tensor& dy,
                                 const Tensor& x, const Tensor& dweight, const Tensor& dbias) {
  check_shape_of("convolution_backward_weight", shape);
  check_typed("convolution_backward_weight", "dy", dy, shape.output(), dy);
  check_typed("convolution_backward_weight", "x", x, shape.input(), dy);
  if (dbias.defined()) {
    check_fp32("convolution_backward_weight", "dbias", dbias, {shape.out_channels});
    add_column_sums(ctx, pixel_rows(dy), dbias);
  }
  if (!dweight.defined()) return;
  check_fp32("convolution_backward_weight", "dweight", dweight, shape.weight());
  const ConvolutionKind kind{shape, dy.dtype()};
  if (shape.depthwise()) {
    if (on_dry_gpu(ctx)) gpu::parts_of_taps(ctx, shape);
    dispatch(TRIREME_OP(depthwise_backward_weight), {flops_of(shape)}, ctx, shape, dy, x, dweight);
  } else if (by_library(ctx, kind)) {
    call_library(ctx, shape, "convolution_backward_weight", {dy, x, dweight},
                 [&] { ctx.convolution->backward_weight(ctx, kind, dy, x, dweight); });
  } else {
    Products(ctx, shape).backward_weight(dy, x, dweight);
  }
}

void convolution_backward(Context& ctx, const ConvolutionShape& shape, const Tensor& dy,
                          const Tensor& x, const Tensor& weight, const Tensor& dx,
                          const Tensor& dweight) {
  if (!shape.depthwise()) {
    convolution_backward_input(ctx, shape, dy, weight, dx);
    return convolution_backward_weight(ctx, shape, dy, x, dweight, Tensor());
  }
  check_shape_of("convolution_backward", shape);
  check_typed("convolution_backward", "dy", dy, shape.output(), dy);
  check_typed("convolution_backward", "x", x, shape.input(), dy);
  check_typed("convolution_backward", "weight", weight, shape.weight(), dy);
  check_typed("convolution_backward", "dx", dx, shape.input(), dy);
  check_fp32("convolution_backward", "dweight", dweight, shape.weight());
  if (on_dry_gpu(ctx)) gpu::parts_of_taps(ctx, shape);
  dispatch(TRIREME_OP(depthwise_backward), {2.0 * flops_of(shape)}, ctx, shape, dy, x, weight, dx,
           dweight);
}

bool convolution_backward_is_one_pass(const Context& ctx, const ConvolutionShape& shape) {
  return ctx.device.kind != DeviceKind::kCpu && gpu::DepthwiseTiles::fit(shape);
}

std::string_view convolution_description(const Context& ctx) {
  return ctx.convolution ? ctx.convolution->description() : "matrix products";
}

}  // namespace trireme::ops
