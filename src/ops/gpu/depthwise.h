// Depthwise convolutions of 3 x 3 with a stride of 1 or 2 (DepthwiseTiles). A block copies a tile
// with what is around it to shared memory, all channels of the block. Then a thread takes two
// channels of a column of the tile and goes down, with what the window sees in registers. Kernels
// with Norms = TileNorms take the work of the batch norms around the convolution (tile_norms.h).
#pragma once

#include <algorithm>
#include <type_traits>

#include "ops/gpu/reduce.h"
#include "ops/gpu/tile_norms.h"
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
  std::int64_t first;
  int left;
  int lane;  // of the first, in the block's channels

  __device__ ChannelPair(const Picture& p, const DepthwiseTiles& tiles)
      : lane(2 * static_cast<int>(threadIdx.x)) {
    first = static_cast<std::int64_t>(blockIdx.x) * tiles.channels + lane;
    const std::int64_t all = p.in_channels - first;
    left = all < 2 ? static_cast<int>(all) : 2;
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
    store_at(to, pixel * p.in_channels + first, p, values);
  }
  template <class T>
  __device__ void store_at(const View<T>& to, std::int64_t at, const Picture& p,
                           const float (&values)[2]) const {
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

// A rectangle's place: its first pixel is (first_row, first_column) of a sample's picture, whose
// height and width are given.
struct RectanglePlace {
  std::int64_t sample, height, width;
  int first_row, first_column;
};

// Calls body(target, source, inside) for the chunks of a rectangle that are this thread's: their
// places in shared memory and in the tensor, and whether the picture has the pixel. All of a
// thread's chunks are of the same channels.
template <class Body>
__device__ inline void for_rectangle(const Picture& p, const DepthwiseTiles& tiles,
                                     const RectanglePlace& place, const Rectangle& extents,
                                     const Body& body) {
  const int chunks = tiles.channels / kChunk;
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  const int step = static_cast<int>(blockDim.x * blockDim.y) / chunks;  // pixels at a time
  const int lane = thread % chunks * kChunk, start = thread / chunks;
  const int down = step / extents.columns, across = step % extents.columns;
  const std::int64_t channel = static_cast<std::int64_t>(blockIdx.x) * tiles.channels + lane;
  int row = start / extents.columns, column = start % extents.columns;
  int target = start * tiles.channels + lane;
#pragma unroll 1
  for (; row < extents.rows; target += step * tiles.channels) {
    const int h = place.first_row + row, w = place.first_column + column;
    const bool inside = 0 <= h && h < place.height && 0 <= w && w < place.width;
    body(target, ((place.sample * place.height + h) * place.width + w) * p.in_channels + channel,
         inside);
    row += down, column += across;
    if (column >= extents.columns) column -= extents.columns, ++row;
  }
}

// The first of the channels that for_rectangle gives this thread, in the block's channels.
__device__ inline int rectangle_lane(const DepthwiseTiles& tiles) {
  const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
  return thread % (tiles.channels / kChunk) * kChunk;
}

// Starts the copy of a rectangle; zeros are beyond the picture.
template <class T>
__device__ inline void start_rectangle(const Picture& p, const DepthwiseTiles& tiles,
                                       const View<T>& from, const RectanglePlace& place,
                                       const Rectangle& extents, T* to) {
  const std::int64_t left = p.in_channels - static_cast<std::int64_t>(blockIdx.x) * tiles.channels -
                            rectangle_lane(tiles);
  for_rectangle(p, tiles, place, extents, [&](int at_target, std::int64_t at_source, bool inside) {
    T* const target = to + at_target;
    const T* const source = from.data + at_source;
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
  });
}

// Normalises what this thread has copied of a rectangle, after wait_for_copies(). Zeros stay beyond
// the picture. `table`: that of load_tile_norm.
template <class T>
__device__ inline void normalize_rectangle(const Picture& p, const DepthwiseTiles& tiles,
                                           const Norm& norm, const float* table,
                                           const RectanglePlace& place, const Rectangle& extents,
                                           T* values) {
  const TileNorm<kChunk> with(table, rectangle_lane(tiles));
  for_rectangle(p, tiles, place, extents, [&](int at, std::int64_t, bool inside) {
    if (!inside) return;
    float chunk[kChunk];
    load_vector(values + at, chunk);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) chunk[i] = norm.clamped(with.made(chunk[i], i));
    store_vector(values + at, chunk);
  });
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

// With TileNorms: y of what the norm before makes of x, and the moments of y.
template <class T, int kStride, class Norms>
__global__ void __launch_bounds__(DepthwiseTiles::kThreads,
                                  std::is_same_v<Norms, TileNorms> ? 3 : 4)
    depthwise_tiles_kernel(Picture p, DepthwiseTiles tiles, Rectangle extents, View<T> x,
                           View<T> weight, View<T> y, Norms norms) {
  TRIREME_DYNAMIC_SHARED(T, seen);
  constexpr bool kNormed = std::is_same_v<Norms, TileNorms>;
  constexpr int kKept = 3 - kStride;  // rows of the window that the next one sees too
  const ChannelPair mine(p, tiles);
  float w[9][2];
  mine.load_weights(weight, w);
  const int padding = static_cast<int>(p.high.padding), channels = tiles.channels;
  const std::int64_t first = blockIdx.y * tiles.per_part, end = first + tiles.per_part;
  [[maybe_unused]] const float* table = nullptr;
  [[maybe_unused]] TileMoments moments;
  if constexpr (kNormed) {
    if (norms.before.defined()) {
      table = load_tile_norm(norms.before, mine.first - mine.lane, channels, p.in_channels);
    }
  }
  for (std::int64_t tile = first; tile < end && tile < tiles.tiles; ++tile) {
    const TilePlace at(tiles, tile);
    const RectanglePlace place = {at.sample, p.high.in, p.wide.in, at.row * kStride - padding,
                                  at.column * kStride - padding};
    __syncthreads();  // all threads have read the tile before
    start_rectangle(p, tiles, x, place, extents, seen);
    wait_for_copies();
    if constexpr (kNormed) {
      if (norms.before.defined()) {
        normalize_rectangle(p, tiles, norms.before, table, place, extents, seen);
      }
    }
    __syncthreads();
    const int rows_left = static_cast<int>(p.high.out) - at.row;
    const int rows = rows_left < tiles.height ? rows_left : tiles.height;
    for (int j = static_cast<int>(threadIdx.y); j < tiles.width && at.column + j < p.wide.out;
         j += static_cast<int>(blockDim.y)) {
      const int line = extents.columns * channels;
      const T* from = seen + j * kStride * channels + mine.lane;
      const std::int64_t pixel = (at.sample * p.high.out + at.row) * p.wide.out + at.column + j;
      std::int64_t to = pixel * p.in_channels + mine.first;
      const std::int64_t line_y = p.wide.out * p.in_channels;
      float window[3][3][2];
#pragma unroll
      for (int r = 0; r < kKept; ++r) load_pixels(from + r * line, channels, window[r]);
#pragma unroll kKept + 1
      for (int i = 0; i < rows; ++i, from += kStride * line, to += line_y) {
#pragma unroll
        for (int r = kKept; r < 3; ++r) load_pixels(from + r * line, channels, window[r]);
        float sum[2] = {};
#pragma unroll
        for (int tap = 0; tap < 9; ++tap) {
#pragma unroll
          for (int c = 0; c < 2; ++c) sum[c] += window[tap / 3][tap % 3][c] * w[tap][c];
        }
        mine.store_at(y, to, p, sum);
        if constexpr (kNormed) {
          round_pair<T>(sum);
          moments.add(sum);
        }
#pragma unroll
        for (int r = 0; r < kKept; ++r) copy_pixels(window[r + kStride], window[r]);
      }
    }
  }
  if constexpr (kNormed) {
    if (norms.pairs == nullptr) return;
    write_moments(moments, norms, mine.first, mine.left, p.in_channels, channels,
                  reinterpret_cast<float*>(seen));
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

// parts (9, gridDim.y, channels) = the sums of this block. The threads of a pair of channels add up
// in order.
__device__ inline void write_tap_parts(const ChannelPair& mine, const float (&sums)[9][2],
                                       const Picture& p, float* lines, float* parts) {
  const int y = static_cast<int>(threadIdx.y), channels = 2 * static_cast<int>(blockDim.x);
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

// dx, and parts of dweight: (9, gridDim.y, channels). A square of kStride x kStride pixels of x is
// seen by kSeen x kSeen windows, whose dy serves both gradients. With TileNorms: dx is the gradient
// of what the norm before made of x, dweight is of that, and the sums of the norm's backward come
// with dx.
template <class T, int kStride, bool kInput, bool kWeight, class Norms>
__global__ void __launch_bounds__(DepthwiseTiles::kThreads,
                                  kInput && (kWeight || std::is_same_v<Norms, TileNorms>) ? 2 : 3)
    depthwise_backward_tiles_kernel(Picture p, DepthwiseTiles tiles, BackwardRectangles extents,
                                    View<T> dy, View<T> x, View<T> weight, View<T> dx, float* parts,
                                    Norms norms) {
  TRIREME_DYNAMIC_SHARED(T, shared);
  constexpr int kSeen = 2 / kStride + 1;
  constexpr bool kNormed = std::is_same_v<Norms, TileNorms>, kReadsX = kWeight || kNormed;
  const ChannelPair mine(p, tiles);
  float w[9][2], sums[9][2] = {};
  if (kInput) mine.load_weights(weight, w);
  const int padding = static_cast<int>(p.high.padding), channels = tiles.channels;
  const int first_square = padding / kStride;
  T* const shared_x = shared + extents.dy.rows * extents.dy.columns * channels;
  const int line = extents.dy.columns * channels, line_x = extents.x.columns * channels;
  [[maybe_unused]] TileNorm<2> norm;
  [[maybe_unused]] PairOfLane of_norm;
  if constexpr (kNormed) {
    const float* const table =
        load_tile_norm(norms.before, mine.first - mine.lane, channels, p.in_channels);
    __syncthreads();
    norm = TileNorm<2>(table, mine.lane);
  }
  const std::int64_t first = blockIdx.y * tiles.per_part, end = first + tiles.per_part;
  for (std::int64_t tile = first; tile < end && tile < tiles.tiles; ++tile) {
    const TilePlace at(tiles, tile);
    const int row = at.row + first_square, column = at.column + first_square;
    __syncthreads();  // all threads have read the tile before
    start_rectangle(p, tiles, dy,
                    {at.sample, p.high.out, p.wide.out, row - (kSeen - 1), column - (kSeen - 1)},
                    extents.dy, shared);
    if (kReadsX) {
      start_rectangle(
          p, tiles, x,
          {at.sample, p.high.in, p.wide.in, row * kStride - padding, column * kStride - padding},
          extents.x, shared_x);
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
            const int at_row = (row + i) * kStride - padding + u;
            const int at_column = (column + j) * kStride - padding + v;
            const bool inside =
                0 <= at_row && at_row < p.high.in && 0 <= at_column && at_column < p.wide.in;
            float seen[2] = {}, sum[2] = {};
            if (kReadsX) load_pair(from_x + u * line_x + v * channels, seen);
            [[maybe_unused]] float centred[2], made[2];
            if constexpr (kNormed) {
#pragma unroll
              for (int c = 0; c < 2; ++c) {
                centred[c] = seen[c] - norm.mean[c], made[c] = norm.made(seen[c], c);
                seen[c] = inside ? norms.before.clamped(made[c]) : 0.0f;
              }
              if (kWeight) round_pair<T>(seen);
            }
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
            if (!kInput || !inside) continue;
            mine.store(dx, (at.sample * p.high.in + at_row) * p.wide.in + at_column, p, sum);
            if constexpr (kNormed) {
              round_pair<T>(sum);
#pragma unroll
              for (int c = 0; c < 2; ++c) {
                const float g = norms.before.passes(made[c]) ? sum[c] : 0.0f;
                of_norm.a[c] += g;
                of_norm.b[c] += g * centred[c];
              }
            }
          }
        }
#pragma unroll
        for (int r = 0; r < kSeen - 1; ++r) copy_pixels(window[r + 1], window[r]);
      }
    }
  }
  float* const lines = reinterpret_cast<float*>(shared);
  if (kWeight) write_tap_parts(mine, sums, p, lines, parts);
  if constexpr (kNormed && kInput) {
    write_sums(of_norm, norms, mine.first, mine.left, p.in_channels, channels, lines);
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

inline std::size_t bytes_of_merge(const DepthwiseTiles& tiles) {
  return static_cast<std::size_t>(tiles.channels / 2 * tiles.positions * kFloatsOfMerge) *
         sizeof(float);
}

template <class Norms>
void depthwise_tiles(Context& ctx, const ConvolutionShape& shape, const Tensor& x,
                     const Tensor& weight, const Tensor& y, const Norms& norms) {
  const Picture p = picture_of(shape, 0, vectors_fit({&x, &y}, shape.in_channels));
  const DepthwiseTiles tiles = DepthwiseTiles::forward(shape);
  const Rectangle seen = seen_by_tile(tiles, shape.stride);
  std::size_t bytes = bytes_of_pixels(tiles, seen.rows * seen.columns, x.dtype());
  if (std::is_same_v<Norms, TileNorms>) bytes = std::max(bytes, bytes_of_merge(tiles));
  with_type_and_stride(x, shape.stride, [&](auto type, auto stride) {
    using T = decltype(type);
    launch(depthwise_tiles_kernel<T, stride.value, Norms>, tiles_grid(tiles), tiles_block(tiles),
           bytes, ctx.stream, p, tiles, seen, View<T>(x), View<T>(weight), View<T>(y), norms);
  });
}

// Either dx, for which it needs weight, or parts, for which it needs x, or both. With TileNorms it
// needs x always.
template <class Norms>
void depthwise_backward_tiles(Context& ctx, const ConvolutionShape& shape, const Tensor& dy,
                              const Tensor& x, const Tensor& weight, const Tensor& dx,
                              const Tensor& parts, const Norms& norms) {
  // An undefined tensor is aligned.
  const Picture p = picture_of(shape, 0, vectors_fit({&dy, &x, &dx}, shape.in_channels));
  const DepthwiseTiles tiles = DepthwiseTiles::backward(shape);
  const BackwardRectangles extents = backward_rectangles(tiles, shape.stride);
  constexpr bool kNormed = std::is_same_v<Norms, TileNorms>;
  const int pixels = extents.dy.rows * extents.dy.columns +
                     (kNormed || parts.defined() ? extents.x.rows * extents.x.columns : 0);
  std::size_t bytes = std::max(bytes_of_pixels(tiles, pixels, dy.dtype()),
                               bytes_of_pixels(tiles, tiles.positions, DType::kF32));
  if (kNormed) bytes = std::max(bytes, bytes_of_merge(tiles));
  with_type_and_stride(dy, shape.stride, [&](auto type, auto stride) {
    using T = decltype(type);
    const auto start = [&](auto kernel) {
      launch(kernel, tiles_grid(tiles), tiles_block(tiles), bytes, ctx.stream, p, tiles, extents,
             View<T>(dy), View<T>(x), View<T>(weight), View<T>(dx),
             parts.defined() ? device_data<float>(parts) : nullptr, norms);
    };
    if (!parts.defined()) {
      start(depthwise_backward_tiles_kernel<T, stride.value, true, false, Norms>);
    } else if (!dx.defined()) {
      start(depthwise_backward_tiles_kernel<T, stride.value, false, true, Norms>);
    } else {
      start(depthwise_backward_tiles_kernel<T, stride.value, true, true, Norms>);
    }
  });
}

// dweight (channels, taps) += the sums of parts (taps, count, channels); blockIdx.y is the tap.
inline constexpr int kLinesOfParts = 32;
static __global__ void __launch_bounds__(32 * kLinesOfParts)
    add_taps_kernel(const float* parts, std::int64_t count, std::int64_t channels, float* dweight) {
  const std::int64_t column = static_cast<std::int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const std::int64_t tap = blockIdx.y, taps = gridDim.y;
  const float sum =
      sum_of_parts<kLinesOfParts>(parts + tap * count * channels, count, channels, column);
  if (threadIdx.y == 0 && column < channels) dweight[column * taps + tap] += sum;
}

inline void add_taps(Context& ctx, const Tensor& parts, const Tensor& dweight) {
  const std::int64_t taps = parts.shape()[0], channels = parts.shape()[2];
  launch(add_taps_kernel, dim3(extent(blocks_for(channels, 32)), extent(taps)),
         dim3(32, kLinesOfParts), 0, ctx.stream,
         static_cast<const float*>(device_data<float>(parts)), parts.shape()[1], channels,
         device_data<float>(dweight));
}

}  // namespace trireme::ops::gpu
