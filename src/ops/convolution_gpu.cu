// Depthwise convolutions, and what makes matrix products of the others. A thread takes eight
// channels of a pixel.
#include "ops/device_ops.h"
#include "ops/gpu/reduce.h"
#include "ops/window.h"

namespace trireme::ops::gpu {
namespace {

// A convolution as kernels see it.
struct Picture {
  std::int64_t batch, in_channels, group_channels, first_channel;
  Windows high, wide;
  bool vector;  // chunks are aligned

  __device__ std::int64_t out_pixels() const { return batch * high.out * wide.out; }
  __device__ std::int64_t in_pixels() const { return batch * high.in * wide.in; }
};

Picture picture_of(const ConvolutionShape& shape, std::int64_t group, bool vector) {
  return {shape.batch,
          shape.in_channels,
          shape.group_channels(),
          group * shape.group_channels(),
          Windows::vertical(shape),
          Windows::horizontal(shape),
          vector};
}

struct Place {
  std::int64_t sample, i, j;
};
__device__ inline Place place_of(std::int64_t pixel, std::int64_t height, std::int64_t width) {
  return {pixel / (height * width), pixel / width % height, pixel % width};
}
// The pixel of the input that a window of the output sees through a tap; -1 outside.
__device__ inline std::int64_t pixel_seen(const Picture& p, const Place& at, std::int64_t tap) {
  const std::int64_t h = p.high.seen(at.i, tap / p.wide.kernel);
  const std::int64_t w = p.wide.seen(at.j, tap % p.wide.kernel);
  return h < 0 || w < 0 ? -1 : (at.sample * p.high.in + h) * p.wide.in + w;
}
// The pixel of the output whose window sees a pixel of the input through a tap; -1 if there is
// none.
__device__ inline std::int64_t pixel_seeing(const Picture& p, const Place& at, std::int64_t tap) {
  const std::int64_t h = p.high.seeing(at.i, tap / p.wide.kernel);
  const std::int64_t w = p.wide.seeing(at.j, tap % p.wide.kernel);
  return h < 0 || w < 0 ? -1 : (at.sample * p.high.out + h) * p.wide.out + w;
}

template <class T>
__global__ void __launch_bounds__(256) unfold_kernel(Picture p, View<T> x, View<T> patches) {
  const std::int64_t taps = p.high.kernel * p.wide.kernel;
  // A row is a tap of a patch.
  for_chunks(p.out_pixels() * taps, p.group_channels,
             [&](std::int64_t row, std::int64_t column, std::int64_t left) {
               const Place at = place_of(row / taps, p.high.out, p.wide.out);
               const std::int64_t from = pixel_seen(p, at, row % taps);
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
               for (std::int64_t tap = 0; tap < taps; ++tap) {
                 const std::int64_t from = pixel_seeing(p, at, tap);
                 if (from < 0) continue;
                 float values[kChunk];
                 load_chunk(patches + (from * taps + tap) * p.group_channels + column, left,
                            p.vector, values);
#pragma unroll
                 for (int i = 0; i < kChunk; ++i) sums[i] += values[i];
               }
               x.store(row * p.in_channels + p.first_channel + column, left, p.vector, sums);
             });
}

// y (pixels of the output) from x, or with kBack x from y: then `from` is dy and `to` dx.
template <class T, bool kBack>
__global__ void __launch_bounds__(256)
    depthwise_kernel(Picture p, View<T> from, View<T> weight, View<T> to) {
  const std::int64_t taps = p.high.kernel * p.wide.kernel, channels = p.in_channels;
  for_chunks(kBack ? p.in_pixels() : p.out_pixels(), channels,
             [&](std::int64_t row, std::int64_t column, std::int64_t left) {
               const Place at = kBack ? place_of(row, p.high.in, p.wide.in)
                                      : place_of(row, p.high.out, p.wide.out);
               float sums[kChunk] = {};
               for (std::int64_t tap = 0; tap < taps; ++tap) {
                 const std::int64_t other =
                     kBack ? pixel_seeing(p, at, tap) : pixel_seen(p, at, tap);
                 if (other < 0) continue;
                 float values[kChunk];
                 from.load(other * channels + column, left, p.vector, values);
#pragma unroll
                 for (int i = 0; i < kChunk; ++i) {
                   if (i < left) sums[i] += values[i] * weight.at((column + i) * taps + tap);
                 }
               }
               to.store(row * channels + column, left, p.vector, sums);
             });
}

// Parts of the sums of dy x for a tap each: blockIdx.z.
template <class T>
__global__ void __launch_bounds__(256)
    depthwise_weight_kernel(Picture p, View<T> dy, View<T> x, float* parts, std::int64_t per_part) {
  const std::int64_t tap = blockIdx.z, channels = p.in_channels;
  sum_part<1>(p.out_pixels(), channels, per_part, parts + tap * gridDim.y * channels,
              [&](std::int64_t row, std::int64_t column, float(&values)[1][kChunk]) {
                const std::int64_t left = channels - column;
                const Place at = place_of(row, p.high.out, p.wide.out);
                const std::int64_t from = pixel_seen(p, at, tap);
                float d[kChunk], seen[kChunk] = {};
                dy.load(row * channels + column, left, p.vector, d);
                if (from >= 0) x.load(from * channels + column, left, p.vector, seen);
#pragma unroll
                for (int i = 0; i < kChunk; ++i) values[0][i] = d[i] * seen[i];
              });
}

// dweight (channels, taps) += the sums of parts (taps, count, channels); blockIdx.y is the tap.
__global__ void __launch_bounds__(256)
    add_taps_kernel(const float* parts, std::int64_t count, std::int64_t channels, float* dweight) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const std::int64_t tap = blockIdx.y, taps = gridDim.y;
  const float sum = sum_of_parts(parts + tap * count * channels, count, channels, column);
  if (threadIdx.y == 0 && column < channels) dweight[column * taps + tap] += sum;
}

// Chunks of a group's channels and of all channels are aligned.
bool groups_fit(std::initializer_list<const Tensor*> tensors, const ConvolutionShape& shape) {
  return vectors_fit(tensors, shape.group_channels()) && shape.in_channels % kChunk == 0;
}

}  // namespace

void unfold(Context& ctx, const ConvolutionShape& shape, const Tensor& x, std::int64_t group,
            const Tensor& patches) {
  const Picture p = picture_of(shape, group, groups_fit({&x, &patches}, shape));
  with_type({&x, &patches}, [&](auto type) {
    using T = decltype(type);
    launch(unfold_kernel<T>, chunk_grid(shape.out_pixels() * shape.taps(), p.group_channels),
           chunk_block(), 0, ctx.stream, p, View<T>(x), View<T>(patches));
  });
}

void fold(Context& ctx, const ConvolutionShape& shape, const Tensor& patches, std::int64_t group,
          const Tensor& x) {
  const Picture p = picture_of(shape, group, groups_fit({&x, &patches}, shape));
  with_type({&x}, [&](auto type) {
    using T = decltype(type);
    launch(fold_kernel<T>, chunk_grid(shape.batch * shape.height * shape.width, p.group_channels),
           chunk_block(), 0, ctx.stream, p, static_cast<const float*>(device_data<float>(patches)),
           View<T>(x));
  });
}

void depthwise(Context& ctx, const ConvolutionShape& shape, const Tensor& x, const Tensor& weight,
               const Tensor& y) {
  const Picture p = picture_of(shape, 0, vectors_fit({&x, &y}, shape.in_channels));
  with_type({&x, &weight, &y}, [&](auto type) {
    using T = decltype(type);
    launch(depthwise_kernel<T, false>, chunk_grid(shape.out_pixels(), shape.in_channels),
           chunk_block(), 0, ctx.stream, p, View<T>(x), View<T>(weight), View<T>(y));
  });
}

void depthwise_backward_input(Context& ctx, const ConvolutionShape& shape, const Tensor& dy,
                              const Tensor& weight, const Tensor& dx) {
  const Picture p = picture_of(shape, 0, vectors_fit({&dy, &dx}, shape.in_channels));
  with_type({&dy, &weight, &dx}, [&](auto type) {
    using T = decltype(type);
    launch(depthwise_kernel<T, true>,
           chunk_grid(shape.batch * shape.height * shape.width, shape.in_channels), chunk_block(),
           0, ctx.stream, p, View<T>(dy), View<T>(weight), View<T>(dx));
  });
}

void depthwise_backward_weight(Context& ctx, const ConvolutionShape& shape, const Tensor& dy,
                               const Tensor& x, const Tensor& dweight) {
  const std::int64_t pixels = shape.out_pixels(), channels = shape.in_channels;
  const std::int64_t per_part = rows_of_part(pixels), count = blocks_for(pixels, per_part);
  const Picture p = picture_of(shape, 0, vectors_fit({&dy, &x}, channels));
  const Tensor parts = parts_of_taps(ctx, shape);
  float* sums = device_data<float>(parts);
  with_type({&dy, &x}, [&](auto type) {
    using T = decltype(type);
    launch(depthwise_weight_kernel<T>,
           dim3(extent(blocks_for(channels, 32 * kChunk)), extent(count), extent(shape.taps())),
           chunk_block(), 0, ctx.stream, p, View<T>(dy), View<T>(x), sums, per_part);
  });
  launch(add_taps_kernel, dim3(extent(blocks_for(channels, 32)), extent(shape.taps())),
         dim3(32, kRowsAtOnce), 0, ctx.stream, static_cast<const float*>(sums), count, channels,
         device_data<float>(dweight));
}

}  // namespace trireme::ops::gpu
