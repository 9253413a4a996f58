// A thread takes eight channels of a pixel, which it alone writes.
#include "ops/device_ops.h"
#include "ops/gpu/math.h"
#include "ops/gpu/view.h"
#include "ops/window.h"

namespace trireme::ops::gpu {
namespace {

// Pooling as kernels see it.
struct Pool {
  std::int64_t batch, channels;
  Windows high, wide;
  bool vector;  // chunks are aligned
};

Pool pool_of(const PoolingShape& shape, std::initializer_list<const Tensor*> tensors) {
  return {shape.batch, shape.channels, Windows::vertical(shape), Windows::horizontal(shape),
          vectors_fit(tensors, shape.channels)};
}

// Calls body(index of the input's chunk, number of the tap) for what the window of a pixel sees.
template <class Body>
__device__ inline void for_seen(const Pool& p, std::int64_t pixel, std::int64_t column,
                                const Body& body) {
  const std::int64_t sample = pixel / (p.high.out * p.wide.out);
  for (std::int64_t kh = 0; kh < p.high.kernel; ++kh) {
    const std::int64_t h = p.high.seen(pixel / p.wide.out % p.high.out, kh);
    if (h < 0) continue;
    for (std::int64_t kw = 0; kw < p.wide.kernel; ++kw) {
      const std::int64_t w = p.wide.seen(pixel % p.wide.out, kw);
      if (w < 0) continue;
      body(((sample * p.high.in + h) * p.wide.in + w) * p.channels + column,
           kh * p.wide.kernel + kw);
    }
  }
}

// Calls body(index of the output's chunk, number of the tap) for the windows that see a pixel.
template <class Body>
__device__ inline void for_seeing(const Pool& p, std::int64_t pixel, std::int64_t column,
                                  const Body& body) {
  const std::int64_t sample = pixel / (p.high.in * p.wide.in);
  for (std::int64_t kh = 0; kh < p.high.kernel; ++kh) {
    const std::int64_t h = p.high.seeing(pixel / p.wide.in % p.high.in, kh);
    if (h < 0) continue;
    for (std::int64_t kw = 0; kw < p.wide.kernel; ++kw) {
      const std::int64_t w = p.wide.seeing(pixel % p.wide.in, kw);
      if (w < 0) continue;
      body(((sample * p.high.out + h) * p.wide.out + w) * p.channels + column,
           kh * p.wide.kernel + kw);
    }
  }
}

template <class T>
__global__ void __launch_bounds__(256)
    max_kernel(Pool p, View<T> x, View<T> y, std::int32_t* which) {
  for_chunks(p.batch * p.high.out * p.wide.out, p.channels,
             [&](std::int64_t pixel, std::int64_t column, std::int64_t left) {
               float best[kChunk];
               int taps[kChunk];
#pragma unroll
               for (int i = 0; i < kChunk; ++i) best[i] = -infinity(), taps[i] = -1;
               for_seen(p, pixel, column, [&](std::int64_t from, std::int64_t tap) {
                 float values[kChunk];
                 x.load(from, left, p.vector, values);
#pragma unroll
                 for (int i = 0; i < kChunk; ++i) {
                   const bool first_nan = values[i] != values[i] && best[i] == best[i];
                   if (!(values[i] > best[i]) && !first_nan && taps[i] >= 0) continue;
                   best[i] = values[i];
                   taps[i] = static_cast<int>(tap);
                 }
               });
               y.store(pixel * p.channels + column, left, p.vector, best);
#pragma unroll
               for (int i = 0; i < kChunk; ++i) {
                 if (i < left) which[pixel * p.channels + column + i] = taps[i];
               }
             });
}

template <class T>
__global__ void __launch_bounds__(256)
    max_backward_kernel(Pool p, View<T> dy, const std::int32_t* which, View<T> dx) {
  for_chunks(p.batch * p.high.in * p.wide.in, p.channels,
             [&](std::int64_t pixel, std::int64_t column, std::int64_t left) {
               float sums[kChunk] = {};
               for_seeing(p, pixel, column, [&](std::int64_t from, std::int64_t tap) {
                 float values[kChunk];
                 dy.load(from, left, p.vector, values);
#pragma unroll
                 for (int i = 0; i < kChunk; ++i) {
                   if (i < left && which[from + i] == tap) sums[i] += values[i];
                 }
               });
               dx.store(pixel * p.channels + column, left, p.vector, sums);
             });
}

template <class T, bool kBack>
__global__ void __launch_bounds__(256)
    average_kernel(Pool p, View<T> from, View<T> to, float factor) {
  const std::int64_t pixels = p.batch * (kBack ? p.high.in * p.wide.in : p.high.out * p.wide.out);
  for_chunks(pixels, p.channels, [&](std::int64_t pixel, std::int64_t column, std::int64_t left) {
    float sums[kChunk] = {};
    const auto add = [&](std::int64_t at, std::int64_t) {
      float values[kChunk];
      from.load(at, left, p.vector, values);
#pragma unroll
      for (int i = 0; i < kChunk; ++i) sums[i] += values[i];
    };
    if constexpr (kBack) {
      for_seeing(p, pixel, column, add);
    } else {
      for_seen(p, pixel, column, add);
    }
#pragma unroll
    for (float& sum : sums) sum *= factor;
    to.store(pixel * p.channels + column, left, p.vector, sums);
  });
}

dim3 grid_of(const Tensor& x) {
  return chunk_grid(x.shape().rows(), x.shape()[3]);
}

}  // namespace

void max_pooling(Context& ctx, const PoolingShape& shape, const Tensor& x, const Tensor& y,
                 const Tensor& which) {
  with_type({&x, &y}, [&](auto type) {
    using T = decltype(type);
    launch(max_kernel<T>, grid_of(y), chunk_block(shape.channels), 0, ctx.stream,
           pool_of(shape, {&x, &y}), View<T>(x), View<T>(y), device_data<std::int32_t>(which));
  });
}

void max_pooling_backward(Context& ctx, const PoolingShape& shape, const Tensor& dy,
                          const Tensor& which, const Tensor& dx) {
  with_type({&dy, &dx}, [&](auto type) {
    using T = decltype(type);
    launch(max_backward_kernel<T>, grid_of(dx), chunk_block(shape.channels), 0, ctx.stream,
           pool_of(shape, {&dy, &dx}), View<T>(dy),
           static_cast<const std::int32_t*>(device_data<std::int32_t>(which)), View<T>(dx));
  });
}

void average_pooling(Context& ctx, const PoolingShape& shape, const Tensor& x, const Tensor& y) {
  const float factor = 1.0f / static_cast<float>(shape.kernel_height * shape.kernel_width);
  with_type({&x, &y}, [&](auto type) {
    using T = decltype(type);
    launch(average_kernel<T, false>, grid_of(y), chunk_block(shape.channels), 0, ctx.stream,
           pool_of(shape, {&x, &y}), View<T>(x), View<T>(y), factor);
  });
}

void average_pooling_backward(Context& ctx, const PoolingShape& shape, const Tensor& dy,
                              const Tensor& dx) {
  const float factor = 1.0f / static_cast<float>(shape.kernel_height * shape.kernel_width);
  with_type({&dy, &dx}, [&](auto type) {
    using T = decltype(type);
    launch(average_kernel<T, true>, grid_of(dx), chunk_block(shape.channels), 0, ctx.stream,
           pool_of(shape, {&dy, &dx}), View<T>(dy), View<T>(dx), factor);
  });
}

}  // namespace trireme::ops::gpu
