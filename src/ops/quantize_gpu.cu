// Bound by memory: a warp has a block of 256 elements, and keeps it in registers.
#include "ops/device_ops.h"
#include "ops/gpu/chunks.h"
#include "ops/gpu/reduce.h"
#include "ops/quantized.h"

namespace trireme::ops::gpu {
namespace {

constexpr int kLane = kQuantizedBlock / 32;  // elements of a lane

// A lane has kRun neighbouring elements at each of kRuns places of its block, so that its codes are
// neighbouring bytes.
template <int kBits>
struct Runs {
  static constexpr int kRun = kBits == 2 ? 2 : 4, kRuns = kLane / kRun;
  static constexpr int kStep = kQuantizedBlock / kRuns;  // elements from place to place
  // With 8 bits the codes of a run are a word. Otherwise each run has its bits in all bytes of one.
  static constexpr int kWords = kBits == 8 ? 2 : 1;
  static constexpr int kShift = kBits == 8 ? 0 : kBits;
};

template <int kRun>
__device__ inline void load_run(const float* from, float* values) {
  if constexpr (kRun == 4) {
    const float4 four = *reinterpret_cast<const float4*>(from);
    values[0] = four.x, values[1] = four.y, values[2] = four.z, values[3] = four.w;
  } else {
    const float2 two = *reinterpret_cast<const float2*>(from);
    values[0] = two.x, values[1] = two.y;
  }
}
template <int kRun>
__device__ inline void store_run(float* to, const float* values) {
  if constexpr (kRun == 4) {
    *reinterpret_cast<float4*>(to) = make_float4(values[0], values[1], values[2], values[3]);
  } else {
    *reinterpret_cast<float2*>(to) = make_float2(values[0], values[1]);
  }
}

// `vector`: the block's address is a multiple of 16 bytes. Elements beyond `count` are read as 0
// and are not written.
template <int kBits>
__device__ inline void load_lane(const float* block, int lane, std::int64_t count, bool vector,
                                 float (&values)[kLane]) {
  using R = Runs<kBits>;
#pragma unroll
  for (int run = 0; run < R::kRuns; ++run) {
    const int at = run * R::kStep + lane * R::kRun;
    if (vector && count == kQuantizedBlock) {
      load_run<R::kRun>(block + at, values + run * R::kRun);
      continue;
    }
#pragma unroll
    for (int i = 0; i < R::kRun; ++i) {
      values[run * R::kRun + i] = at + i < count ? block[at + i] : 0.0f;
    }
  }
}
template <int kBits>
__device__ inline void store_lane(float* block, int lane, std::int64_t count, bool vector,
                                  const float (&values)[kLane]) {
  using R = Runs<kBits>;
#pragma unroll
  for (int run = 0; run < R::kRuns; ++run) {
    const int at = run * R::kStep + lane * R::kRun;
    if (vector && count == kQuantizedBlock) {
      store_run<R::kRun>(block + at, values + run * R::kRun);
      continue;
    }
#pragma unroll
    for (int i = 0; i < R::kRun; ++i) {
      if (at + i < count) block[at + i] = values[run * R::kRun + i];
    }
  }
}

template <int kBits>
__device__ inline void store_codes(std::uint8_t* codes, int lane, const unsigned (&words)[2]) {
  if constexpr (kBits == 2) {
    reinterpret_cast<std::uint16_t*>(codes)[lane] = static_cast<std::uint16_t>(words[0]);
  } else {
    auto* to = reinterpret_cast<std::uint32_t*>(codes);
#pragma unroll
    for (int word = 0; word < Runs<kBits>::kWords; ++word) to[word * 32 + lane] = words[word];
  }
}
template <int kBits>
__device__ inline void load_codes(const std::uint8_t* codes, int lane, unsigned (&words)[2]) {
  if constexpr (kBits == 2) {
    words[0] = reinterpret_cast<const std::uint16_t*>(codes)[lane];
  } else {
    const auto* from = reinterpret_cast<const std::uint32_t*>(codes);
#pragma unroll
    for (int word = 0; word < Runs<kBits>::kWords; ++word) words[word] = from[word * 32 + lane];
  }
}

__device__ inline std::int64_t block_of_warp() {
  return static_cast<std::int64_t>(blockIdx.x) * (kThreads / 32) + threadIdx.x / 32;
}

__device__ inline std::uint32_t warp_largest(std::uint32_t key) {
#pragma unroll
  for (int offset = 16; offset > 0; offset /= 2) {
    const std::uint32_t other = __shfl_xor_sync(kAllLanes, key, offset);
    key = other > key ? other : key;
  }
  return key;
}

template <int kBits>
__global__ void __launch_bounds__(kThreads)
    quantize_kernel(QuantizedPlaces places, std::int64_t blocks, const float* x, float* error,
                    std::uint8_t* packed, bool vector) {
  using R = Runs<kBits>;
  const std::int64_t block = block_of_warp();
  if (block >= blocks) return;  // the whole warp
  const int lane = static_cast<int>(threadIdx.x % 32);
  const QuantizedPlace place = places.of(block);
  float v[kLane];
  load_lane<kBits>(x + place.first, lane, place.count, vector, v);
  if (error != nullptr) {
    float kept[kLane];
    load_lane<kBits>(error + place.first, lane, place.count, vector, kept);
#pragma unroll
    for (int i = 0; i < kLane; ++i) v[i] += kept[i];
  }
  std::uint32_t key = 0;
#pragma unroll
  for (const float value : v) {
    const std::uint32_t other = magnitude_key(value);
    key = other > key ? other : key;
  }
  const BlockScale of = scale_of_block(warp_largest(key), kBits);
  constexpr float kTop = (1 << (kBits - 1)) - 1;
  constexpr unsigned kMask = (1u << kBits) - 1;
  unsigned words[2] = {0, 0};
#pragma unroll
  for (int run = 0; run < R::kRuns; ++run) {
#pragma unroll
    for (int i = 0; i < R::kRun; ++i) {
      float& value = v[run * R::kRun + i];
      const float exact = value * of.inverse;
      const float code = of.finite ? rintf(exact > kTop ? kTop : exact) : 0.0f;
      words[R::kWords == 2 ? run : 0] |= (static_cast<unsigned>(static_cast<int>(code)) & kMask)
                                         << (8 * i + R::kShift * run);
      value -= code * of.scale;  // exact, fused or not
    }
  }
  store_codes<kBits>(packed + place.codes, lane, words);
  if (lane == 0) *reinterpret_cast<std::uint16_t*>(packed + place.scale) = of.bf16();
  if (error != nullptr && of.finite) {
    store_lane<kBits>(error + place.first, lane, place.count, vector, v);
  }
}

template <int kBits>
__global__ void __launch_bounds__(kThreads)
    dequantize_kernel(QuantizedPlaces places, std::int64_t blocks, const std::uint8_t* packed,
                      float* y, bool vector) {
  using R = Runs<kBits>;
  const std::int64_t block = block_of_warp();
  if (block >= blocks) return;
  const int lane = static_cast<int>(threadIdx.x % 32);
  const QuantizedPlace place = places.of(block);
  unsigned words[2];
  load_codes<kBits>(packed + place.codes, lane, words);
  const unsigned upper = *reinterpret_cast<const std::uint16_t*>(packed + place.scale);
  const float scale = __uint_as_float(upper << 16);
  float values[kLane];
#pragma unroll
  for (int run = 0; run < R::kRuns; ++run) {
#pragma unroll
    for (int i = 0; i < R::kRun; ++i) {
      // The code's sign comes to the top.
      const unsigned top = words[R::kWords == 2 ? run : 0]
                           << (32 - kBits - (8 * i + R::kShift * run));
      values[run * R::kRun + i] = static_cast<float>(static_cast<int>(top) >> (32 - kBits)) * scale;
    }
  }
  store_lane<kBits>(y + place.first, lane, place.count, vector, values);
}

// `elements`: with those that fill up the parts.
__global__ void __launch_bounds__(kThreads)
    round_kernel(const float* x, float* error, BFloat16* codes, std::int64_t n,
                 std::int64_t elements, bool vector) {
  const std::int64_t at = chunk_of_thread();
  if (at >= elements) return;
  float v[kChunk], kept[kChunk] = {};
  load_chunk(x + at, n - at, vector, v);
  if (error != nullptr) load_chunk(error + at, n - at, vector, kept);
#pragma unroll
  for (int i = 0; i < kChunk; ++i) v[i] += kept[i];
  store_chunk(codes + at, elements - at, true, v);
  if (error == nullptr) return;
#pragma unroll
  for (int i = 0; i < kChunk; ++i) {
    const float value = View<BFloat16>::rounded(v[i]);
    v[i] = isfinite(value) ? v[i] - value : kept[i];
  }
  store_chunk(error + at, n - at, vector, v);
}

__global__ void __launch_bounds__(kThreads)
    widen_kernel(const BFloat16* codes, float* y, std::int64_t n, bool vector) {
  const std::int64_t at = chunk_of_thread();
  if (at >= n) return;
  float values[kChunk];
  load_chunk(codes + at, n - at, true, values);
  store_chunk(y + at, n - at, vector, values);
}

// A part's bytes after its last scale.
__global__ void clear_ends_kernel(QuantizedPlaces places, std::uint8_t* packed) {
  std::uint8_t* part = packed + blockIdx.x * places.part_bytes;
  const std::int64_t at = places.scales_at + 2 * places.blocks_of_part + threadIdx.x;
  if (at < places.part_bytes) part[at] = 0;
}

// Calls body with the number of bits as a type.
template <class Body>
void with_bits(int bits, const Body& body) {
  if (bits == 8) return body(std::integral_constant<int, 8>());
  if (bits == 4) return body(std::integral_constant<int, 4>());
  body(std::integral_constant<int, 2>());
}

}  // namespace

void quantize(Context& ctx, const Packing& packing, const Tensor& x, const Tensor& error,
              const Tensor& packed) {
  const bool vector = vectors_fit({&x, &error}, kQuantizedBlock);
  const std::int64_t blocks = packing.parts * packing.blocks_of_part();
  if (packing.bits == 16) {
    const std::int64_t elements = blocks * kQuantizedBlock;
    launch(round_kernel, blocks_of_chunks(elements), kThreads, 0, ctx.stream, device_data<float>(x),
           device_data<float>(error), static_cast<BFloat16*>(packed.raw()), packing.elements,
           elements, vector);
    return;
  }
  const QuantizedPlaces places(packing);
  with_bits(packing.bits, [&](auto bits) {
    launch(quantize_kernel<decltype(bits)::value>, extent(blocks_for(blocks, kThreads / 32)),
           kThreads, 0, ctx.stream, places, blocks, device_data<float>(x),
           device_data<float>(error), device_data<std::uint8_t>(packed), vector);
  });
  launch(clear_ends_kernel, extent(packing.parts), 8, 0, ctx.stream, places,
         device_data<std::uint8_t>(packed));
}

void dequantize(Context& ctx, const Packing& packing, const Tensor& packed, const Tensor& y) {
  const bool vector = vectors_fit({&y}, kQuantizedBlock);
  if (packing.bits == 16) {
    launch(widen_kernel, blocks_of_chunks(packing.elements), kThreads, 0, ctx.stream,
           static_cast<const BFloat16*>(packed.raw()), device_data<float>(y), packing.elements,
           vector);
    return;
  }
  const std::int64_t blocks = packing.parts * packing.blocks_of_part();
  with_bits(packing.bits, [&](auto bits) {
    launch(dequantize_kernel<decltype(bits)::value>, extent(blocks_for(blocks, kThreads / 32)),
           kThreads, 0, ctx.stream, QuantizedPlaces(packing), blocks,
           device_data<std::uint8_t>(packed), device_data<float>(y), vector);
  });
}

}  // namespace trireme::ops::gpu
