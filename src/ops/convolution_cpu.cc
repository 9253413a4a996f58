#include <algorithm>
#include <cstring>
#include <vector>

#include "ops/cpu/parallel.h"
#include "ops/cpu/staging.h"
#include "ops/device_ops.h"
#include "ops/window.h"

namespace trireme::ops::cpu {
namespace {

std::byte* bytes_at(const Tensor& x, std::int64_t element) {
  return static_cast<std::byte*>(x.raw()) + static_cast<std::size_t>(element) * size_of(x.dtype());
}

// For each pixel of a line the pixels of the other line that it is a sum over.
struct LineTaps {
  std::vector<std::int32_t> first = {0};
  std::vector<ColumnTap> taps;

  template <class Other>
  LineTaps(std::int64_t pixels, std::int64_t kernel, const Other& other) {
    for (std::int64_t j = 0; j < pixels; ++j) {
      for (std::int64_t tap = 0; tap < kernel; ++tap) {
        const std::int64_t at = other(j, tap);
        if (at >= 0) {
          taps.push_back({static_cast<std::int32_t>(at), static_cast<std::int32_t>(tap)});
        }
      }
      first.push_back(static_cast<std::int32_t>(taps.size()));
    }
  }
};

// weight (C, taps, 1), of any type, as (taps, C) fp32.
Tensor by_taps(Context& ctx, const ConvolutionShape& shape, const Tensor& weight) {
  const Tensor whole = as_fp32(ctx, weight);
  const std::int64_t taps = shape.taps(), channels = shape.in_channels;
  const Tensor turned = ctx.allocate({taps, channels}, DType::kF32, MemoryUse::kWorkspace);
  on_this_thread(ctx, [&] {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t t = 0; t < taps; ++t) {
        turned.data<float>()[t * channels + c] = whole.data<float>()[c * taps + t];
      }
    }
  });
  return turned;
}

// The part of a depthwise convolution that forward and backward have in common: each row of pixels
// of `to` is a sum over rows of `from`. rows: which those are.
void depthwise_rows(Context& ctx, const ConvolutionShape& shape, const Tensor& from,
                    const Tensor& weight, const LineTaps& rows, const LineTaps& columns,
                    const Tensor& to) {
  const std::int64_t channels = shape.in_channels, height = to.shape()[1];
  const std::int64_t length = to.shape()[2] * channels, from_length = from.shape()[2] * channels;
  const Tensor taps = by_taps(ctx, shape, weight);
  const bool converts = from.dtype() != DType::kF32;
  const ThreadRows in(ctx, converts ? shape.kernel_height * from_length : 1);
  const ThreadRows out(ctx, to.dtype() == DType::kF32 ? 1 : length);
  std::vector<const float*> pointers(
      static_cast<std::size_t>(2 * shape.kernel_height * std::max(1, ctx.threads)));
  parallel_ranges(
      ctx, shape.batch * height, row_grain(length), [&](std::int64_t first, std::int64_t end) {
        const float** row = pointers.data() + thread_number() * 2 * shape.kernel_height;
        const float** weights = row + shape.kernel_height;
        for (std::int64_t at = first; at < end; ++at) {
          const std::int64_t sample = at / height, line = at % height;
          std::int64_t count = 0;
          for (std::int32_t t = rows.first[line]; t < rows.first[line + 1]; ++t, ++count) {
            const ColumnTap& tap = rows.taps[t];
            row[count] = read_fp32(from, (sample * from.shape()[1] + tap.at) * from_length,
                                   from_length, in.mine() + (converts ? count * from_length : 0));
            weights[count] = taps.data<float>() + tap.tap * shape.kernel_width * channels;
          }
          float* y = write_place(to, at * length, out.mine());
          kernels().pictures.depthwise({row, weights, count, columns.first.data(),
                                        columns.taps.data(), to.shape()[2], channels},
                                       y);
          write_back(to, at * length, length, y);
        }
      });
}

}  // namespace

void unfold(Context& ctx, const ConvolutionShape& shape, const Tensor& x, std::int64_t group,
            const Tensor& patches) {
  const std::int64_t channels = shape.group_channels(), row = patches.shape()[1];
  const Windows high = Windows::vertical(shape), wide = Windows::horizontal(shape);
  const std::size_t run = static_cast<std::size_t>(channels) * size_of(x.dtype());
  parallel_ranges(
      ctx, shape.out_pixels(), row_grain(row), [&](std::int64_t first, std::int64_t end) {
        for (std::int64_t pixel = first; pixel < end; ++pixel) {
          const std::int64_t j = pixel % wide.out, i = pixel / wide.out % high.out;
          const std::int64_t sample = pixel / (wide.out * high.out);
          std::byte* to = bytes_at(patches, pixel * row);
          for (std::int64_t kh = 0; kh < high.kernel; ++kh) {
            const std::int64_t h = high.seen(i, kh);
            for (std::int64_t kw = 0; kw < wide.kernel; ++kw, to += run) {
              const std::int64_t w = wide.seen(j, kw);
              if (h < 0 || w < 0) {
                std::memset(to, 0, run);
              } else {
                const std::int64_t from = (sample * high.in + h) * wide.in + w;
                std::memcpy(to, bytes_at(x, from * shape.in_channels + group * channels), run);
              }
            }
          }
        }
      });
}

void fold(Context& ctx, const ConvolutionShape& shape, const Tensor& patches, std::int64_t group,
          const Tensor& x) {
  const std::int64_t channels = shape.group_channels(), row = patches.shape()[1];
  const Windows high = Windows::vertical(shape), wide = Windows::horizontal(shape);
  const ThreadRows out(ctx, channels);
  parallel_ranges(ctx, shape.batch * high.in, row_grain(wide.in * channels * shape.taps()),
                  [&](std::int64_t first, std::int64_t end) {
                    for (std::int64_t at = first; at < end; ++at) {
                      const std::int64_t sample = at / high.in, i = at % high.in;
                      for (std::int64_t j = 0; j < wide.in; ++j) {
                        const std::int64_t to =
                            (at * wide.in + j) * shape.in_channels + group * channels;
                        float* sum = write_place(x, to, out.mine());
                        std::fill_n(sum, channels, 0.0f);
                        for (std::int64_t kh = 0; kh < high.kernel; ++kh) {
                          const std::int64_t h = high.seeing(i, kh);
                          for (std::int64_t kw = 0; h >= 0 && kw < wide.kernel; ++kw) {
                            const std::int64_t w = wide.seeing(j, kw);
                            if (w < 0) continue;
                            const float* from = patches.data<float>() +
                                                ((sample * high.out + h) * wide.out + w) * row +
                                                (kh * wide.kernel + kw) * channels;
                            kernels().elementwise.add(sum, from, sum, channels);
                          }
                        }
                        write_back(x, to, channels, sum);
                      }
                    }
                  });
}

void depthwise(Context& ctx, const ConvolutionShape& shape, const Tensor& x, const Tensor& weight,
               const Tensor& y) {
  const Windows high = Windows::vertical(shape), wide = Windows::horizontal(shape);
  const auto seen = [](const Windows& line) {
    return [line](std::int64_t j, std::int64_t tap) { return line.seen(j, tap); };
  };
  depthwise_rows(ctx, shape, x, weight, {high.out, high.kernel, seen(high)},
                 {wide.out, wide.kernel, seen(wide)}, y);
}

void depthwise_backward_input(Context& ctx, const ConvolutionShape& shape, const Tensor& dy,
                              const Tensor& weight, const Tensor& dx) {
  const Windows high = Windows::vertical(shape), wide = Windows::horizontal(shape);
  const auto seeing = [](const Windows& line) {
    return [line](std::int64_t at, std::int64_t tap) { return line.seeing(at, tap); };
  };
  depthwise_rows(ctx, shape, dy, weight, {high.in, high.kernel, seeing(high)},
                 {wide.in, wide.kernel, seeing(wide)}, dx);
}

// Sums over the rows of dy, in parts that depend on the shape alone.
void depthwise_backward_weight(Context& ctx, const ConvolutionShape& shape, const Tensor& dy,
                               const Tensor& x, const Tensor& dweight) {
  const Windows high = Windows::vertical(shape), wide = Windows::horizontal(shape);
  const std::int64_t channels = shape.in_channels, taps = shape.taps();
  const std::int64_t rows = shape.batch * high.out, grain = rows_per_part(rows);
  const std::int64_t count = (rows + grain - 1) / grain;
  const std::int64_t length = wide.out * channels, x_length = wide.in * channels;
  const Tensor parts = ctx.allocate({count, taps * channels}, DType::kF32, MemoryUse::kWorkspace);
  const ThreadRows in_dy(ctx, dy.dtype() == DType::kF32 ? 1 : length);
  const ThreadRows in_x(ctx, x.dtype() == DType::kF32 ? 1 : x_length);
  parallel_ranges(ctx, rows, grain, [&](std::int64_t first, std::int64_t end) {
    float* part = parts.data<float>() + first / grain * taps * channels;
    std::fill_n(part, taps * channels, 0.0f);
    for (std::int64_t row = first; row < end; ++row) {
      const std::int64_t sample = row / high.out, i = row % high.out;
      const float* d = read_fp32(dy, row * length, length, in_dy.mine());
      for (std::int64_t kh = 0; kh < high.kernel; ++kh) {
        const std::int64_t h = high.seen(i, kh);
        if (h < 0) continue;
        const float* from = read_fp32(x, (sample * high.in + h) * x_length, x_length, in_x.mine());
        for (std::int64_t kw = 0; kw < wide.kernel; ++kw) {
          const std::int64_t j = wide.first_seeing(kw), pixels = wide.end_seeing(kw) - j;
          if (pixels <= 0) continue;
          kernels().pictures.add_products(
              d + j * channels, channels, from + (j * wide.stride - wide.padding + kw) * channels,
              wide.stride * channels, pixels, channels, part + (kh * wide.kernel + kw) * channels);
        }
      }
    }
  });
  const Tensor sums = ctx.allocate({taps, channels}, DType::kF32, MemoryUse::kWorkspace);
  on_this_thread(ctx, [&] { std::fill_n(sums.data<float>(), taps * channels, 0.0f); });
  add_parts(ctx, parts.data<float>(), count, taps * channels, sums.data<float>());
  on_this_thread(ctx, [&] {
    for (std::int64_t c = 0; c < channels; ++c) {
      for (std::int64_t t = 0; t < taps; ++t) {
        dweight.data<float>()[c * taps + t] += sums.data<float>()[t * channels + c];
      }
    }
  });
}

void depthwise_backward(Context& ctx, const ConvolutionShape& shape, const Tensor& dy,
                        const Tensor& x, const Tensor& weight, const Tensor& dx,
                        const Tensor& dweight) {
  depthwise_backward_input(ctx, shape, dy, weight, dx);
  depthwise_backward_weight(ctx, shape, dy, x, dweight);
}

}  // namespace trireme::ops::cpu
