#include <limits>

#include "ops/cpu/parallel.h"
#include "ops/cpu/staging.h"
#include "ops/device_ops.h"
#include "ops/window.h"

namespace trireme::ops::cpu {
namespace {

// Calls body(sample, i, j, pixel) for all pixels of x (N, H, W, C). `taps`: how many pixels of the
// other picture each of them needs.
template <class Body>
void for_pixels(const Context& ctx, const Tensor& x, std::int64_t taps, const Body& body) {
  const std::int64_t height = x.shape()[1], width = x.shape()[2];
  parallel_ranges(ctx, x.shape()[0] * height, row_grain(width * x.shape()[3] * taps),
                  [&](std::int64_t first, std::int64_t end) {
                    for (std::int64_t row = first; row < end; ++row) {
                      for (std::int64_t j = 0; j < width; ++j) {
                        body(row / height, row % height, j, row * width + j);
                      }
                    }
                  });
}

// Calls body(pixel of the input, number of the tap) for what window (i, j) sees.
template <class Body>
void for_seen(const PoolingShape& shape, std::int64_t sample, std::int64_t i, std::int64_t j,
              const Body& body) {
  const Windows high = Windows::vertical(shape), wide = Windows::horizontal(shape);
  for (std::int64_t kh = 0; kh < high.kernel; ++kh) {
    const std::int64_t h = high.seen(i, kh);
    for (std::int64_t kw = 0; h >= 0 && kw < wide.kernel; ++kw) {
      const std::int64_t w = wide.seen(j, kw);
      if (w >= 0) body((sample * high.in + h) * wide.in + w, kh * wide.kernel + kw);
    }
  }
}

// Calls body(pixel of the output, number of the tap) for the windows that see pixel (i, j).
template <class Body>
void for_seeing(const PoolingShape& shape, std::int64_t sample, std::int64_t i, std::int64_t j,
                const Body& body) {
  const Windows high = Windows::vertical(shape), wide = Windows::horizontal(shape);
  for (std::int64_t kh = 0; kh < high.kernel; ++kh) {
    const std::int64_t h = high.seeing(i, kh);
    for (std::int64_t kw = 0; h >= 0 && kw < wide.kernel; ++kw) {
      const std::int64_t w = wide.seeing(j, kw);
      if (w >= 0) body((sample * high.out + h) * wide.out + w, kh * wide.kernel + kw);
    }
  }
}

}  // namespace

void max_pooling(Context& ctx, const PoolingShape& shape, const Tensor& x, const Tensor& y,
                 const Tensor& which) {
  const std::int64_t n = shape.channels;
  const ThreadRows in(ctx, n), out(ctx, n);
  for_pixels(ctx, y, shape.kernel_height * shape.kernel_width,
             [&](std::int64_t sample, std::int64_t i, std::int64_t j, std::int64_t pixel) {
               float* best = write_place(y, pixel * n, out.mine());
               std::int32_t* taps = which.data<std::int32_t>() + pixel * n;
               std::fill_n(best, n, -std::numeric_limits<float>::infinity());
               std::fill_n(taps, n, -1);
               for_seen(shape, sample, i, j, [&](std::int64_t from, std::int64_t tap) {
                 kernels().pictures.take_larger(read_fp32(x, from * n, n, in.mine()),
                                                static_cast<std::int32_t>(tap), best, taps, n);
               });
               write_back(y, pixel * n, n, best);
             });
}

void max_pooling_backward(Context& ctx, const PoolingShape& shape, const Tensor& dy,
                          const Tensor& which, const Tensor& dx) {
  const std::int64_t n = shape.channels;
  const ThreadRows in(ctx, n), out(ctx, n);
  for_pixels(ctx, dx, shape.kernel_height * shape.kernel_width,
             [&](std::int64_t sample, std::int64_t i, std::int64_t j, std::int64_t pixel) {
               float* sum = write_place(dx, pixel * n, out.mine());
               std::fill_n(sum, n, 0.0f);
               for_seeing(shape, sample, i, j, [&](std::int64_t from, std::int64_t tap) {
                 kernels().pictures.add_where(read_fp32(dy, from * n, n, in.mine()),
                                              which.data<std::int32_t>() + from * n,
                                              static_cast<std::int32_t>(tap), sum, n);
               });
               write_back(dx, pixel * n, n, sum);
             });
}

void average_pooling(Context& ctx, const PoolingShape& shape, const Tensor& x, const Tensor& y) {
  const std::int64_t n = shape.channels, taps = shape.kernel_height * shape.kernel_width;
  const ThreadRows in(ctx, n), out(ctx, n);
  for_pixels(ctx, y, taps,
             [&](std::int64_t sample, std::int64_t i, std::int64_t j, std::int64_t pixel) {
               float* sum = write_place(y, pixel * n, out.mine());
               std::fill_n(sum, n, 0.0f);
               for_seen(shape, sample, i, j, [&](std::int64_t from, std::int64_t) {
                 kernels().elementwise.add(sum, read_fp32(x, from * n, n, in.mine()), sum, n);
               });
               kernels().elementwise.scale(sum, 1.0f / static_cast<float>(taps), n);
               write_back(y, pixel * n, n, sum);
             });
}

void average_pooling_backward(Context& ctx, const PoolingShape& shape, const Tensor& dy,
                              const Tensor& dx) {
  const std::int64_t n = shape.channels, taps = shape.kernel_height * shape.kernel_width;
  const ThreadRows in(ctx, n), out(ctx, n);
  for_pixels(ctx, dx, 1,
             [&](std::int64_t sample, std::int64_t i, std::int64_t j, std::int64_t pixel) {
               float* sum = write_place(dx, pixel * n, out.mine());
               std::fill_n(sum, n, 0.0f);
               for_seeing(shape, sample, i, j, [&](std::int64_t from, std::int64_t) {
                 kernels().elementwise.add(sum, read_fp32(dy, from * n, n, in.mine()), sum, n);
               });
               kernels().elementwise.scale(sum, 1.0f / static_cast<float>(taps), n);
               write_back(dx, pixel * n, n, sum);
             });
}

}  // namespace trireme::ops::cpu
