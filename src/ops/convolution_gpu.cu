// Depthwise convolutions (those of 3 x 3 are in depthwise.h), and what makes matrix products of the
// others. A thread takes eight channels of a pixel.
#include "ops/device_ops.h"
#include "ops/gpu/depthwise.h"
#include "ops/window.h"

namespace trireme::ops::gpu {
namespace {

// The pixel of the input that a window of the output sees through a tap; -1 outside.
__device__ inline std::int64_t pixel_seen(const Picture& p, const Place& at, std::int64_t tap) {
  const Divided of_window = divided(tap, p.wide.kernel);
  const std::int64_t h = p.high.seen(at.i, of_window.quotient);
  const std::int64_t w = p.wide.seen(at.j, of_window.remainder);
  return h < 0 || w < 0 ? -1 : (at.sample * p.high.in + h) * p.wide.in + w;
}

// Calls body(pixel, tap) for the pixels of the input that a window at `at` sees; with kBack for the
// windows of the output that see a pixel.
template <bool kBack, class Body>
__device__ inline void for_taps(const Picture& p, const Place& at, const Body& body) {
  const std::int64_t height = kBack ? p.high.out : p.high.in;
  const std::int64_t width = kBack ? p.wide.out : p.wide.in;
  const int lines = static_cast<int>(p.high.kernel), taps = static_cast<int>(p.wide.kernel);
  for (int kh = 0; kh < lines; ++kh) {
    const std::int64_t h = kBack ? p.high.seeing(at.i, kh) : p.high.seen(at.i, kh);
    if (h < 0) continue;
    const std::int64_t line = (at.sample * height + h) * width;
    for (int kw = 0; kw < taps; ++kw) {
      const std::int64_t w = kBack ? p.wide.seeing(at.j, kw) : p.wide.seen(at.j, kw);
      if (w >= 0) body(line + w, kh * taps + kw);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(256) unfold_kernel(Picture p, View<T> x, View<T> patches) {
  const std::int64_t taps = p.high.kernel * p.wide.kernel;
  // A row is a tap of a patch.
  for_chunks(p.out_pixels() * taps, p.group_channels,
             [&](std::int64_t row, std::int64_t column, std::int64_t left) {
               const Divided of_patch = divided(row, taps);
               const Place at = place_of(of_patch.quotient, p.high.out, p.wide.out);
               const std::int64_t from = pixel_seen(p, at, of_patch.remainder);
               float values[kChunk] = {};
               if (from >= 0) {
                 x.load(from * p.in_channels + p.first_channel + column, left, p.vector, values);
               }
               patches.store(row * p.group_channels + column, left, p.vector, values);
             });
}

template <class T>
__global__ void __launch_bounds__(256) fold_kernel(Picture p, const float* patches, View<T> x) {
  const std::int64_t taps = p.high.kernel * p.wide.kernel;
  for_chunks(p.in_pixels(), p.group_channels,
             [&](std::int64_t row, std::int64_t column, std::int64_t left) {
               const Place at = place_of(row, p.high.in, p.wide.in);
               float sums[kChunk] = {};
               for_taps<true>(p, at, [&](std::int64_t from, int tap) {
                 float values[kChunk];
                 load_chunk(patches + (from * taps + tap) * p.group_channels + column, left,
                            p.vector, values);
#pragma unroll
                 for (int i = 0; i < kChunk; ++i) sums[i] += values[i];
               });
               x.store(row * p.in_channels + p.first_channel + column, left, p.vector, sums);
             });
}

// y (pixels of the output) from x, or with kBack x from y: then `from` is dy and `to` dx. Shared
// memory holds the weights of the block's columns: (taps, columns).
template <class T, bool kBack>
__global__ void __launch_bounds__(256)
    depthwise_kernel(Picture p, View<T> from, View<T> weight, View<T> to) {
  TRIREME_DYNAMIC_SHARED(float, weights);
  const int taps = static_cast<int>(p.high.kernel * p.wide.kernel);
  const int width = static_cast<int>(blockDim.x) * kChunk;
  const std::int64_t channels = p.in_channels;
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  for (int at = thread; at < taps * width; at += static_cast<int>(blockDim.x * blockDim.y)) {
    const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * width + at % width;
    weights[at] = column < channels ? weight.at(column * taps + at / width) : 0.0f;
  }
  __syncthreads();
  for_chunks(kBack ? p.in_pixels() : p.out_pixels(), channels,
             [&](std::int64_t row, std::int64_t column, std::int64_t left) {
               const Place at = kBack ? place_of(row, p.high.in, p.wide.in)
                                      : place_of(row, p.high.out, p.wide.out);
               float sums[kChunk] = {};
               for_taps<kBack>(p, at, [&](std::int64_t other, int tap) {
                 float values[kChunk], factors[kChunk];
                 from.load(other * channels + column, left, p.vector, values);
                 load_vector(weights + tap * width + threadIdx.x * kChunk, factors);
#pragma unroll
                 for (int i = 0; i < kChunk; ++i) sums[i] += values[i] * factors[i];
               });
               to.store(row * channels + column, left, p.vector, sums);
             });
}

// Parts of the sums of dy x for a few neighbouring taps each: blockIdx.z.
constexpr int kTapsAtOnce = 3;
__host__ __device__ inline std::int64_t tap_groups(const Picture& p) {
  return (p.wide.kernel + kTapsAtOnce - 1) / kTapsAtOnce;  // in a line of the window
}
template <class T>
__global__ void __launch_bounds__(256)
    depthwise_weight_kernel(Picture p, View<T> dy, View<T> x, float* parts, std::int64_t per_part) {
  const int groups = static_cast<int>(tap_groups(p)), kernel = static_cast<int>(p.wide.kernel);
  const int kh = static_cast<int>(blockIdx.z) / groups;
  const int kw = static_cast<int>(blockIdx.z) % groups * kTapsAtOnce;
  const int used = kernel - kw < kTapsAtOnce ? kernel - kw : kTapsAtOnce;
  const std::int64_t channels = p.in_channels;
  sum_part<kTapsAtOnce>(
      p.out_pixels(), channels, per_part, parts + (kh * kernel + kw) * gridDim.y * channels,
      [&](std::int64_t row, std::int64_t column, float(&values)[kTapsAtOnce][kChunk]) {
        const std::int64_t left = channels - column;
        const Place at = place_of(row, p.high.out, p.wide.out);
        const std::int64_t h = p.high.seen(at.i, kh);
        const std::int64_t line = (at.sample * p.high.in + h) * p.wide.in;
        float d[kChunk];
        dy.load(row * channels + column, left, p.vector, d);
#pragma unroll
        for (int tap = 0; tap < kTapsAtOnce; ++tap) {
          const std::int64_t w = tap < used ? p.wide.seen(at.j, kw + tap) : -1;
          float seen[kChunk] = {};
          if (h >= 0 && w >= 0) {
            x.load((line + w) * channels + column, left, p.vector, seen);
          }
#pragma unroll
          for (int i = 0; i < kChunk; ++i) values[tap][i] = d[i] * seen[i];
        }
      },
      used);
}

// Chunks of a group's channels and of all channels are aligned.
bool groups_fit(std::initializer_list<const Tensor*> tensors, const ConvolutionShape& shape) {
  return vectors_fit(tensors, shape.group_channels()) && shape.in_channels % kChunk == 0;
}

// Starts depthwise_kernel. Fewer columns a block where the weights of many taps would take much
// shared memory.
template <class T, bool kBack>
void start_depthwise(Context& ctx, const ConvolutionShape& shape, const Picture& p,
                     std::int64_t rows, const Tensor& from, const Tensor& weight,
                     const Tensor& to) {
  constexpr std::int64_t kMostBytes = 48 << 10;
  const std::int64_t of_lane = shape.taps() * kChunk * static_cast<std::int64_t>(sizeof(float));
  const int most = static_cast<int>(std::clamp<std::int64_t>(kMostBytes / of_lane, 1, kMostLanes));
  const std::int64_t channels = shape.in_channels;
  const auto bytes = static_cast<std::size_t>(chunk_lanes(channels, most) * of_lane);
  launch(depthwise_kernel<T, kBack>, chunk_grid(rows, channels, most), chunk_block(channels, most),
         bytes, ctx.stream, p, View<T>(from), View<T>(weight), View<T>(to));
}

}  // namespace

void unfold(Context& ctx, const ConvolutionShape& shape, const Tensor& x, std::int64_t group,
            const Tensor& patches) {
  const Picture p = picture_of(shape, group, groups_fit({&x, &patches}, shape));
  with_type({&x, &patches}, [&](auto type) {
    using T = decltype(type);
    launch(unfold_kernel<T>, chunk_grid(shape.out_pixels() * shape.taps(), p.group_channels),
           chunk_block(p.group_channels), 0, ctx.stream, p, View<T>(x), View<T>(patches));
  });
}

void fold(Context& ctx, const ConvolutionShape& shape, const Tensor& patches, std::int64_t group,
          const Tensor& x) {
  const Picture p = picture_of(shape, group, groups_fit({&x, &patches}, shape));
  with_type({&x}, [&](auto type) {
    using T = decltype(type);
    launch(fold_kernel<T>, chunk_grid(shape.batch * shape.height * shape.width, p.group_channels),
           chunk_block(p.group_channels), 0, ctx.stream, p,
           static_cast<const float*>(device_data<float>(patches)), View<T>(x));
  });
}

void depthwise(Context& ctx, const ConvolutionShape& shape, const Tensor& x, const Tensor& weight,
               const Tensor& y) {
  if (DepthwiseTiles::fit(shape)) return depthwise_tiles(ctx, shape, x, weight, y, NoNorms());
  const Picture p = picture_of(shape, 0, vectors_fit({&x, &y}, shape.in_channels));
  with_type({&x, &weight, &y}, [&](auto type) {
    using T = decltype(type);
    start_depthwise<T, false>(ctx, shape, p, shape.out_pixels(), x, weight, y);
  });
}

void depthwise_backward_input(Context& ctx, const ConvolutionShape& shape, const Tensor& dy,
                              const Tensor& weight, const Tensor& dx) {
  if (DepthwiseTiles::fit(shape)) {
    return depthwise_backward_tiles(ctx, shape, dy, Tensor(), weight, dx, Tensor(), NoNorms());
  }
  const Picture p = picture_of(shape, 0, vectors_fit({&dy, &dx}, shape.in_channels));
  with_type({&dy, &weight, &dx}, [&](auto type) {
    using T = decltype(type);
    start_depthwise<T, true>(ctx, shape, p, shape.batch * shape.height * shape.width, dy, weight,
                             dx);
  });
}

void depthwise_backward_weight(Context& ctx, const ConvolutionShape& shape, const Tensor& dy,
                               const Tensor& x, const Tensor& dweight) {
  const Tensor parts = parts_of_taps(ctx, shape);
  if (DepthwiseTiles::fit(shape)) {
    depthwise_backward_tiles(ctx, shape, dy, x, Tensor(), Tensor(), parts, NoNorms());
    return add_taps(ctx, parts, dweight);
  }
  const std::int64_t pixels = shape.out_pixels(), channels = shape.in_channels;
  const Picture p = picture_of(shape, 0, vectors_fit({&dy, &x}, channels));
  with_type({&dy, &x}, [&](auto type) {
    using T = decltype(type);
    dim3 grid = part_grid(channels, parts.shape()[1]);
    grid.z = extent(shape.kernel_height * tap_groups(p));
    launch(depthwise_weight_kernel<T>, grid, chunk_block(channels), 0, ctx.stream, p, View<T>(dy),
           View<T>(x), device_data<float>(parts), rows_of_part(pixels));
  });
  add_taps(ctx, parts, dweight);
}

void depthwise_backward(Context& ctx, const ConvolutionShape& shape, const Tensor& dy,
                        const Tensor& x, const Tensor& weight, const Tensor& dx,
                        const Tensor& dweight) {
  if (!DepthwiseTiles::fit(shape)) {
    depthwise_backward_input(ctx, shape, dy, weight, dx);
    return depthwise_backward_weight(ctx, shape, dy, x, dweight);
  }
  const Tensor parts = parts_of_taps(ctx, shape);
  depthwise_backward_tiles(ctx, shape, dy, x, weight, dx, parts, NoNorms());
  add_taps(ctx, parts, dweight);
}

}  // namespace trireme::ops::gpu
