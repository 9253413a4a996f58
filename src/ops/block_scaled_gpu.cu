// Bound by memory: a block of threads has a tile of 128 x 128 elements. It reads it once, and
// writes it as it lies and turned.
#include "ops/device_ops.h"
#include "ops/gpu/chunks.h"
#include "ops/gpu/reduce.h"
#include "ops/power_scale.h"

namespace trireme::ops::gpu {
namespace {

constexpr int kSide = kScaledSide, kPairs = kSide / 2;
constexpr int kLanes = kSide / kChunk;     // threads of a row
constexpr int kLines = kThreads / kLanes;  // rows at a time
constexpr int kPasses = kSide / kLines;
constexpr int kWarps = kThreads / 32;

// A matrix in memory; null: it is not wanted.
struct ScaledPlace {
  std::uint8_t* codes = nullptr;
  float* scales = nullptr;

  ScaledPlace() = default;
  explicit ScaledPlace(const BlockScaled& of)
      : codes(static_cast<std::uint8_t*>(of.codes.raw())), scales(device_data<float>(of.scales)) {}
};

// Where a pair of columns of a row lies in shared memory. A warp's accesses to four rows of a lane
// each, of one pair, are to 32 banks.
__device__ inline int place_of(int row, int pair) {
  return row * kPairs + (pair ^ (row / 4));
}

__device__ inline uint4 load_words(const BFloat16* from, bool vector) {
  if (vector) return *reinterpret_cast<const uint4*>(from);
  const auto pair = [&](int i) {
    return from[i].bits | static_cast<unsigned>(from[i + 1].bits) << 16;
  };
  return make_uint4(pair(0), pair(2), pair(4), pair(6));
}

__device__ inline void magnitudes_of(const uint4& words, unsigned (&of)[kChunk]) {
  const unsigned word[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
  for (int i = 0; i < 4; ++i) {
    of[2 * i] = bf16_magnitude(word[i]);
    of[2 * i + 1] = bf16_magnitude(word[i] >> 16);
  }
}

__device__ inline float times(float value, float inverse) {
  return inverse == 0.0f ? 0.0f : value * inverse;
}

// Eight codes of one scale.
__device__ inline uint2 encode_chunk(const uint4& words, float inverse) {
  RawChunk<BFloat16> raw;
  raw.words[0] = words;
  float v[kChunk];
  unpack(raw, v);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) v[i] = times(v[i], inverse);
  return make_uint2(pack_e4m3(v[0], v[1]) | pack_e4m3(v[2], v[3]) << 16,
                    pack_e4m3(v[4], v[5]) | pack_e4m3(v[6], v[7]) << 16);
}

// Writes the tile's codes turned. inverse[j] is that of column j.
__device__ inline void write_turned(const unsigned* tile, const float* inverse, std::uint8_t* codes,
                                    std::int64_t rows, std::int64_t first_row,
                                    std::int64_t first_column) {
  const int lane = static_cast<int>(threadIdx.x % 32);
  for (int pair = static_cast<int>(threadIdx.x / 32); pair < kPairs; pair += kWarps) {
    const float low = inverse[2 * pair], high = inverse[2 * pair + 1];
    float left[4], right[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const unsigned word = tile[place_of(4 * lane + i, pair)];
      left[i] = times(low_bf16(word), low);
      right[i] = times(high_bf16(word), high);
    }
    std::uint8_t* to = codes + (first_column + 2 * pair) * rows + first_row + 4 * lane;
    *reinterpret_cast<unsigned*>(to) = pack_e4m3(left[0], left[1]) | pack_e4m3(left[2], left[3])
                                                                         << 16;
    *reinterpret_cast<unsigned*>(to + rows) =
        pack_e4m3(right[0], right[1]) | pack_e4m3(right[2], right[3]) << 16;
  }
}

// The largest of the block's threads. `of_warps` is shared memory, kWarps elements.
__device__ inline unsigned block_largest(unsigned value, unsigned* of_warps) {
  value = __reduce_max_sync(kAllLanes, value);
  if (threadIdx.x % 32 == 0) of_warps[threadIdx.x / 32] = value;
  __syncthreads();
  unsigned largest = 0;
#pragma unroll
  for (int i = 0; i < kWarps; ++i) largest = of_warps[i] > largest ? of_warps[i] : largest;
  return largest;
}

// The scale of tile (row, column) of (.., across) tiles, and zeros that fill up its row.
__device__ inline void write_tile_scale(const ScaledPlace& to, std::int64_t row,
                                        std::int64_t column, std::int64_t across, float scale) {
  const std::int64_t stride = (across + 3) / 4 * 4;
  to.scales[row * stride + column] = scale;
  if (column + 1 < across) return;
  for (std::int64_t i = across; i < stride; ++i) to.scales[row * stride + i] = 0.0f;
}

__global__ void __launch_bounds__(kThreads)
    scale_rows_kernel(const BFloat16* x, ScaledPlace straight, ScaledPlace turned, bool vector) {
  TRIREME_SHARED(unsigned, tile, kSide* kPairs);
  TRIREME_SHARED(unsigned, largest, kWarps* kSide);
  TRIREME_SHARED(float, inverse, kSide);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes;
  const std::int64_t rows = static_cast<std::int64_t>(gridDim.y) * kSide;
  const std::int64_t columns = static_cast<std::int64_t>(gridDim.x) * kSide;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kSide;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * kSide;
  unsigned of_column[kChunk] = {};
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int row = pass * kLines + thread / kLanes;
    const std::int64_t at = (first_row + row) * columns + first_column + lane * kChunk;
    const uint4 words = load_words(x + at, vector);
    unsigned of[kChunk], of_row = 0;
    magnitudes_of(words, of);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) {
      of_column[i] = of[i] > of_column[i] ? of[i] : of_column[i];
      of_row = of[i] > of_row ? of[i] : of_row;
    }
    if (straight.codes != nullptr) {
#pragma unroll
      for (int offset = kLanes / 2; offset > 0; offset /= 2) {
        const unsigned other = __shfl_xor_sync(kAllLanes, of_row, offset);
        of_row = other > of_row ? other : of_row;
      }
      const PowerScale scale = power_scale(of_row);
      *reinterpret_cast<uint2*>(straight.codes + at) = encode_chunk(words, scale.inverse);
      if (lane == 0) straight.scales[blockIdx.x * rows + first_row + row] = scale.scale;
    }
    tile[place_of(row, 4 * lane)] = words.x;
    tile[place_of(row, 4 * lane + 1)] = words.y;
    tile[place_of(row, 4 * lane + 2)] = words.z;
    tile[place_of(row, 4 * lane + 3)] = words.w;
  }
  if (turned.codes == nullptr) return;  // the whole grid
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const unsigned other = __shfl_xor_sync(kAllLanes, of_column[i], kLanes);
    of_column[i] = other > of_column[i] ? other : of_column[i];
    if (thread % 32 < kLanes) largest[thread / 32 * kSide + lane * kChunk + i] = of_column[i];
  }
  __syncthreads();
  if (thread < kSide) {
    unsigned of = 0;
#pragma unroll
    for (int i = 0; i < kWarps; ++i) {
      const unsigned other = largest[i * kSide + thread];
      of = other > of ? other : of;
    }
    const PowerScale scale = power_scale(of);
    inverse[thread] = scale.inverse;
    turned.scales[blockIdx.y * columns + first_column + thread] = scale.scale;
  }
  __syncthreads();
  write_turned(tile, inverse, turned.codes, rows, first_row, first_column);
}

__global__ void __launch_bounds__(kThreads)
    scale_tiles_kernel(const BFloat16* x, ScaledPlace straight, ScaledPlace turned, bool vector) {
  TRIREME_SHARED(unsigned, tile, kSide* kPairs);
  TRIREME_SHARED(unsigned, of_warps, kWarps);
  TRIREME_SHARED(float, inverse, kSide);
  const int thread = static_cast<int>(threadIdx.x), lane = thread % kLanes;
  const std::int64_t rows = static_cast<std::int64_t>(gridDim.y) * kSide;
  const std::int64_t columns = static_cast<std::int64_t>(gridDim.x) * kSide;
  const std::int64_t first_row = static_cast<std::int64_t>(blockIdx.y) * kSide;
  const std::int64_t first_column = static_cast<std::int64_t>(blockIdx.x) * kSide;
  const std::int64_t first = (first_row + thread / kLanes) * columns + first_column + lane * kChunk;
  uint4 words[kPasses];
  unsigned largest = 0;
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    words[pass] = load_words(x + first + pass * kLines * columns, vector);
    unsigned of[kChunk];
    magnitudes_of(words[pass], of);
#pragma unroll
    for (int i = 0; i < kChunk; ++i) largest = of[i] > largest ? of[i] : largest;
  }
  const PowerScale scale = power_scale(block_largest(largest, of_warps));
  if (straight.codes != nullptr) {
    if (thread == 0) write_tile_scale(straight, blockIdx.y, blockIdx.x, gridDim.x, scale.scale);
#pragma unroll
    for (int pass = 0; pass < kPasses; ++pass) {
      *reinterpret_cast<uint2*>(straight.codes + first + pass * kLines * columns) =
          encode_chunk(words[pass], scale.inverse);
    }
  }
  if (turned.codes == nullptr) return;  // the whole grid
  if (thread == 0) write_tile_scale(turned, blockIdx.x, blockIdx.y, gridDim.y, scale.scale);
  if (thread < kSide) inverse[thread] = scale.inverse;
#pragma unroll
  for (int pass = 0; pass < kPasses; ++pass) {
    const int row = pass * kLines + thread / kLanes;
    tile[place_of(row, 4 * lane)] = words[pass].x;
    tile[place_of(row, 4 * lane + 1)] = words[pass].y;
    tile[place_of(row, 4 * lane + 2)] = words[pass].z;
    tile[place_of(row, 4 * lane + 3)] = words[pass].w;
  }
  __syncthreads();
  write_turned(tile, inverse, turned.codes, rows, first_row, first_column);
}

}  // namespace

void scale_blocks(Context& ctx, const Tensor& x, const BlockScaled& straight,
                  const BlockScaled& turned) {
  const bool tiles = (straight.defined() ? straight : turned).blocks == ScaledBlocks::kTiles;
  const dim3 grid(extent(x.shape()[1] / kSide), extent(x.shape()[0] / kSide));
  const auto place = [](const BlockScaled& of) {
    return of.defined() ? ScaledPlace(of) : ScaledPlace();
  };
  launch(tiles ? scale_tiles_kernel : scale_rows_kernel, grid, kThreads, 0, ctx.stream,
         device_data<BFloat16>(x), place(straight), place(turned), vectors_fit({&x}, kSide));
}

}  // namespace trireme::ops::gpu
