// Depthwise convolutions of 3 x 3 with a stride of 1 or 2 (DepthwiseTiles). A block copies a tile
// with what is around it to shared memory, all channels of the block. Then a thread takes two
// channels of a column of the tile and goes down, with what the window sees in registers.
#pragma once

#include <algorithm>
#include <type_traits>

#include "ops/gpu/view.h"
#include "ops/window.h"

namespace trireme::ops::gpu {

// A convolution as kernels see it.
struct Picture {
  std::int64_t batch, in_channels, group_channels, first_channel;
  Windows high, wide;
  bool vector;  // chunks are aligned

  __device__ std::int64_t out_pixels() const { return batch * high.out * wide.out; }
  __device__ std::int64_t in_pixels() const { return batch * high.in * wide.in; }
};

inline Picture picture_of(const ConvolutionShape& shape, std::int64_t group, bool vector) {
  return {shape.batch,
          shape.in_channels,
          shape.group_channels(),
          group * shape.group_channels(),
          Windows::vertical(shape),
          Windows::horizontal(shape),
          vector};
}

// A GPU takes far longer to divide numbers of 64 bits, which few tensors need.
struct Divided {
  std::int64_t quotient, remainder;
};
__device__ inline Divided divided(std::int64_t a, std::int64_t by) {
  if ((a | by) >> 32 == 0) {
    const auto small = static_cast<std::uint32_t>(a), divisor = static_cast<std::uint32_t>(by);
    const std::uint32_t quotient = small / divisor;
    return {quotient, small - quotient * divisor};
  }
  return {a / by, a % by};
}

struct Place {
  std::int64_t sample, i, j;
};
__device__ inline Place place_of(std::int64_t pixel, std::int64_t height, std::int64_t width) {
  const Divided line = divided(pixel, width), sample = divided(line.quotient, height);
  return {sample.quotient, sample.remainder, line.remainder};
}
static_assert(DepthwiseTiles::kChunk == kChunk);

// The channels of a thread: two, of which `left` exist.
struct ChannelPair {
  std::int64_t first, left;
  int lane;  // of the first, in the block's channels

  __device__ ChannelPair(const Picture& p, const DepthwiseTiles& tiles)
      : lane(2 * static_cast<int>(threadIdx.x)) {
    first = static_cast<std::int64_t>(blockIdx.x) * tiles.channels + lane;
    left = p.in_channels - first;
  }
  // Reads the weights (channels, 9) as (9, 2).
  template <class T>
  __device__ void load_weights(const View<T>& weight, float (&w)[9][2]) const {
#pragma unroll
    for (int c = 0; c < 2; ++c) {
#pragma unroll
      for (int tap = 0; tap < 9; ++tap) w[tap][c] = c < left ? weight.at((first + c) * 9 + tap) : 0;
    }
  }
  template <class T>
  __device__ void store(const View<T>& to, std::int64_t pixel, const Picture& p,
                        const float (&values)[2]) const {
    const std::int64_t at = pixel * p.in_channels + first;
    if (p.vector && left >= 2) return store_pair(to.data + at, values);
    if (left > 0) to.set(at, values[0]);
    if (left > 1) to.set(at + 1, values[1]);
  }
};

// A tile's first row and column, among those that tiles divide.
struct TilePlace {
  std::int64_t sample;
  int row, column;

  __device__ TilePlace(const DepthwiseTiles& tiles, std::int64_t tile) {
    const Divided line = divided(tile, tiles.across),
                  in_sample = divided(line.quotient, tiles.down);
    sample = in_sample.quotient;
    row = static_cast<int>(in_sample.remainder) * tiles.height;
    column = static_cast<int>(line.remainder) * tiles.width;
  }
};

// A rectangle of a picture in shared memory: (rows, columns, channels of the block).
struct Rectangle {
  int rows, columns;
};

// Starts the copy of a rectangle. Its first pixel is (first_row, first_column) of the sample's
// picture, whose height and width are given; zeros are beyond.
template <class T>
__device__ inline void start_rectangle(const Picture& p, const DepthwiseTiles& tiles,
                                       const View<T>& from, std::int64_t sample,
                                       std::int64_t height, std::int64_t width, int first_row,
                                       int first_column, const Rectangle& extents, T* to) {
  const int chunks = tiles.channels / kChunk;
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int step = static_cast<int>(blockDim.x * blockDim.y) / chunks;  // pixels at a time
  const int lane = thread % chunks * kChunk, start = thread / chunks;
  const int down = step / extents.columns, across = step % extents.columns;
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * tiles.channels + lane;
  const std::int64_t left = p.in_channels - channel;
  int row = start / extents.columns, column = start % extents.columns;
  T* target = to + start * tiles.channels + lane;
  for (; row < extents.rows; target += step * tiles.channels) {
    const int h = first_row + row, w = first_column + column;
    const bool inside = 0 <= h && h < height && 0 <= w && w < width;
    const T* const source =
        from.data + ((sample * height + h) * width + w) * p.in_channels + channel;
    if (inside && p.vector && left >= kChunk) {
#pragma unroll
      for (int at = 0; at < kChunk; at += 16 / static_cast<int>(sizeof(T))) {
        start_copy(reinterpret_cast<float*>(target + at),
                   reinterpret_cast<const float*>(source + at));
      }
    } else {
#pragma unroll
      for (int i = 0; i < kChunk; ++i) {
        if (inside && i < left) {
          target[i] = source[i];
        } else {
          assign(target[i], 0.0f);
        }
      }
    }
    row += down, column += across;
    if (column >= extents.columns) column -= extents.columns, ++row;
  }
}

// Two channels of neighbouring pixels of shared memory: kCount of them.
template <int kCount, class T>
__device__ inline void load_pixels(const T* from, int channels, float (&values)[kCount][2]) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) load_pair(from + n * channels, values[n]);
}
template <int kCount>
__device__ inline void copy_pixels(const float (&from)[kCount][2], float (&to)[kCount][2]) {
#pragma unroll
  for (int n = 0; n < kCount; ++n) to[n][0] = from[n][0], to[n][1] = from[n][1];
}

inline Rectangle seen_by_tile(const DepthwiseTiles& tiles, std::int64_t stride) {
  const int step = static_cast<int>(stride);
  return {(tiles.height - 1) * step + 3, (tiles.width - 1) * step + 3};
}

template <class T, int kStride>
__global__ void __launch_bounds__(DepthwiseTiles::kThreads, 4)
    depthwise_tiles_kernel(Picture p, DepthwiseTiles tiles, Rectangle extents, View<T> x,
                           View<T> weight, View<T> y) {
  TRIREME_DYNAMIC_SHARED(T, seen);
  constexpr int kKept = 3 - kStride;  // rows of the window that the next one sees too
  const ChannelPair mine(p, tiles);
  float w[9][2];
  mine.load_weights(weight, w);
  const int padding = static_cast<int>(p.high.padding), channels = tiles.channels;
  const std::int64_t first = blockIdx.y * tiles.per_part, end = first + tiles.per_part;
  for (std::int64_t tile = first; tile < end && tile < tiles.tiles; ++tile) {
    const TilePlace at(tiles, tile);
    __syncthreads();  // all threads have read the tile before
    start_rectangle(p, tiles, x, at.sample, p.high.in, p.wide.in, at.row * kStride - padding,
                    at.column * kStride - padding, extents, seen);
    wait_for_copies();
    __syncthreads();
    const int rows_left = static_cast<int>(p.high.out) - at.row;
    const int rows = rows_left < tiles.height ? rows_left : tiles.height;
    for (int j = static_cast<int>(threadIdx.y); j < tiles.width && at.column + j < p.wide.out;
         j += static_cast<int>(blockDim.y)) {
      const int line = extents.columns * channels;
      const T* from = seen + j * kStride * channels + mine.lane;
      std::int64_t pixel = (at.sample * p.high.out + at.row) * p.wide.out + at.column + j;
      float window[3][3][2];
#pragma unroll
      for (int r = 0; r < kKept; ++r) load_pixels(from + r * line, channels, window[r]);
#pragma unroll kKept + 1
      for (int i = 0; i < rows; ++i, from += kStride * line, pixel += p.wide.out) {
#pragma unroll
        for (int r = kKept; r < 3; ++r) load_pixels(from + r * line, channels, window[r]);
        float sum[2] = {};
#pragma unroll
        for (int tap = 0; tap < 9; ++tap) {
#pragma unroll
          for (int c = 0; c < 2; ++c) sum[c] += window[tap / 3][tap % 3][c] * w[tap][c];
        }
        mine.store(y, pixel, p, sum);
#pragma unroll
        for (int r = 0; r < kKept; ++r) copy_pixels(window[r + kStride], window[r]);
      }
    }
  }
}

// What the backward has in shared memory: dy and x.
struct BackwardRectangles {
  Rectangle dy, x;
};
inline BackwardRectangles backward_rectangles(const DepthwiseTiles& tiles, std::int64_t stride) {
  const int step = static_cast<int>(stride), around = 2 / step;
  return {{tiles.height + around, tiles.width + around}, {tiles.height * step, tiles.width * step}};
}

// dx, and parts of dweight: (9, gridDim.y, channels). A square of kStride x kStride pixels of x is
// seen by kSeen x kSeen windows, whose dy serves both gradients.
template <class T, int kStride, bool kInput, bool kWeight>
__global__ void __launch_bounds__(DepthwiseTiles::kThreads, kInput&& kWeight ? 2 : 3)
    depthwise_backward_tiles_kernel(Picture p, DepthwiseTiles tiles, BackwardRectangles extents,
                                    View<T> dy, View<T> x, View<T> weight, View<T> dx,
                                    float* parts) {
  TRIREME_DYNAMIC_SHARED(T, shared);
  constexpr int kSeen = 2 / kStride + 1;
  const ChannelPair mine(p, tiles);
  float w[9][2], sums[9][2] = {};
  if (kInput) mine.load_weights(weight, w);
  const int padding = static_cast<int>(p.high.padding), channels = tiles.channels;
  const int first_square = padding / kStride;
  T* const shared_x = shared + extents.dy.rows * extents.dy.columns * channels;
  const int line = extents.dy.columns * channels, line_x = extents.x.columns * channels;
  const std::int64_t first = blockIdx.y * tiles.per_part, end = first + tiles.per_part;
  for (std::int64_t tile = first; tile < end && tile < tiles.tiles; ++tile) {
    const TilePlace at(tiles, tile);
    const int row = at.row + first_square, column = at.column + first_square;
    __syncthreads();  // all threads have read the tile before
    start_rectangle(p, tiles, dy, at.sample, p.high.out, p.wide.out, row - (kSeen - 1),
                    column - (kSeen - 1), extents.dy, shared);
    if (kWeight) {
      start_rectangle(p, tiles, x, at.sample, p.high.in, p.wide.in, row * kStride - padding,
                      column * kStride - padding, extents.x, shared_x);
    }
    wait_for_copies();
    __syncthreads();
    for (int j = static_cast<int>(threadIdx.y); j < tiles.width;
         j += static_cast<int>(blockDim.y)) {
      const T* from = shared + j * channels + mine.lane;
      const T* from_x = shared_x + j * kStride * channels + mine.lane;
      float window[kSeen][kSeen][2];
#pragma unroll
      for (int r = 0; r < kSeen - 1; ++r) load_pixels(from + r * line, channels, window[r]);
#pragma unroll kSeen
      for (int i = 0; i < tiles.height; ++i, from += line, from_x += kStride * line_x) {
        load_pixels(from + (kSeen - 1) * line, channels, window[kSeen - 1]);
#pragma unroll
        for (int u = 0; u < kStride; ++u) {
#pragma unroll
          for (int v = 0; v < kStride; ++v) {
            float seen[2] = {}, sum[2] = {};
            if (kWeight) load_pair(from_x + u * line_x + v * channels, seen);
#pragma unroll
            for (int kh = u; kh < 3; kh += kStride) {
#pragma unroll
              for (int kw = v; kw < 3; kw += kStride) {
                const float(&g)[2] = window[kSeen - 1 - kh / kStride][kSeen - 1 - kw / kStride];
#pragma unroll
                for (int c = 0; c < 2; ++c) {
                  if (kInput) sum[c] += g[c] * w[kh * 3 + kw][c];
                  if (kWeight) sums[kh * 3 + kw][c] += g[c] * seen[c];
                }
              }
            }
            const int at_row = (row + i) * kStride - padding + u;
            const int at_column = (column + j) * kStride - padding + v;
            if (kInput && 0 <= at_row && at_row < p.high.in && 0 <= at_column &&
                at_column < p.wide.in) {
              mine.store(dx, (at.sample * p.high.in + at_row) * p.wide.in + at_column, p, sum);
            }
          }
        }
#pragma unroll
        for (int r = 0; r < kSeen - 1; ++r) copy_pixels(window[r + 1], window[r]);
      }
    }
  }
  if (!kWeight) return;
  // The threads of a pair of channels add up in order.
  float* const lines = reinterpret_cast<float*>(shared);
  const int y = static_cast<int>(threadIdx.y);
#pragma unroll
  for (int tap = 0; tap < 9; ++tap) {
    __syncthreads();
    store_pair(lines + y * channels + mine.lane, sums[tap]);
    __syncthreads();
    if (y != 0) continue;
    float total[2] = {};
    for (int other = 0; other < static_cast<int>(blockDim.y); ++other) {
      float more[2];
      load_pair(lines + other * channels + mine.lane, more);
      total[0] += more[0], total[1] += more[1];
    }
    float* const to = parts +
                      (tap * static_cast<std::int64_t>(gridDim.y) + blockIdx.y) * p.in_channels +
                      mine.first;
    if (mine.left > 0) to[0] = total[0];
    if (mine.left > 1) to[1] = total[1];
  }
}

// Calls body(type, stride), with stride a constant. Both tensors have one type, so it is known.
template <class Body>
void with_type_and_stride(const Tensor& x, std::int64_t stride, const Body& body) {
  with_type({&x}, [&](auto type) {
    if constexpr (!std::is_same_v<decltype(type), Any>) {
      if (stride == 1) {
        body(type, std::integral_constant<int, 1>());
      } else {
        body(type, std::integral_constant<int, 2>());
      }
    }
  });
}

inline dim3 tiles_grid(const DepthwiseTiles& tiles) {
  return dim3(extent(tiles.groups), extent(tiles.parts));
}
inline dim3 tiles_block(const DepthwiseTiles& tiles) {
  return dim3(extent(tiles.channels / 2), extent(tiles.positions));
}
inline std::size_t bytes_of_pixels(const DepthwiseTiles& tiles, int pixels, DType type) {
  return static_cast<std::size_t>(pixels) * static_cast<std::size_t>(tiles.channels) *
         size_of(type);
}

inline void depthwise_tiles(Context& ctx, const ConvolutionShape& shape, const Tensor& x,
                            const Tensor& weight, const Tensor& y) {
  const Picture p = picture_of(shape, 0, vectors_fit({&x, &y}, shape.in_channels));
  const DepthwiseTiles tiles = DepthwiseTiles::forward(shape);
  const Rectangle seen = seen_by_tile(tiles, shape.stride);
  with_type_and_stride(x, shape.stride, [&](auto type, auto stride) {
    using T = decltype(type);
    launch(depthwise_tiles_kernel<T, stride.value>, tiles_grid(tiles), tiles_block(tiles),
           bytes_of_pixels(tiles, seen.rows * seen.columns, x.dtype()), ctx.stream, p, tiles, seen,
           View<T>(x), View<T>(weight), View<T>(y));
  });
}

// Either dx, for which it needs weight, or parts, for which it needs x, or both.
inline void depthwise_backward_tiles(Context& ctx, const ConvolutionShape& shape, const Tensor& dy,
                                     const Tensor& x, const Tensor& weight, const Tensor& dx,
                                     const Tensor& parts) {
  // An undefined tensor is aligned.
  const Picture p = picture_of(shape, 0, vectors_fit({&dy, &x, &dx}, shape.in_channels));
  const DepthwiseTiles tiles = DepthwiseTiles::backward(shape);
  const BackwardRectangles extents = backward_rectangles(tiles, shape.stride);
  const int pixels = extents.dy.rows * extents.dy.columns +
                     (parts.defined() ? extents.x.rows * extents.x.columns : 0);
  const std::size_t bytes = std::max(bytes_of_pixels(tiles, pixels, dy.dtype()),
                                     bytes_of_pixels(tiles, tiles.positions, DType::kF32));
  with_type_and_stride(dy, shape.stride, [&](auto type, auto stride) {
    using T = decltype(type);
    const auto start = [&](auto kernel) {
      launch(kernel, tiles_grid(tiles), tiles_block(tiles), bytes, ctx.stream, p, tiles, extents,
             View<T>(dy), View<T>(x), View<T>(weight), View<T>(dx),
             parts.defined() ? device_data<float>(parts) : nullptr);
    };
    if (!parts.defined()) {
      start(depthwise_backward_tiles_kernel<T, stride.value, true, false>);
    } else if (!dx.defined()) {
      start(depthwise_backward_tiles_kernel<T, stride.value, false, true>);
    } else {
      start(depthwise_backward_tiles_kernel<T, stride.value, true, true>);
    }
  });
}

}  // namespace trireme::ops::gpu
