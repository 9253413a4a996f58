#include <algorithm>
#include <cstring>

#include "ops/cpu/kernels.h"
#include "ops/cpu/parallel.h"
#include "ops/device_ops.h"
#include "ops/quantized.h"

namespace trireme::ops::cpu {
namespace {

constexpr std::int64_t kBlockGrain = 64;

// Calls body(place) for each block, those that hold no elements too.
template <class Body>
void for_blocks(const Context& ctx, const Packing& packing, const Body& body) {
  const QuantizedPlaces places(packing);
  parallel_ranges(ctx, packing.parts * packing.blocks_of_part(), kBlockGrain,
                  [&](std::int64_t begin, std::int64_t end) {
                    for (std::int64_t block = begin; block < end; ++block) body(places.of(block));
                  });
}

// The values of one block, filled up with zeros.
struct Values {
  float v[kQuantizedBlock];
};

// error (count) += x, minus the codes' values.
void quantize_block(int bits, std::int64_t count, const float* x, float* error, std::uint8_t* codes,
                    std::uint8_t* scale) {
  Values block;
  const std::uint32_t key = kernels().quantize.join(x, error, count, block.v);
  const BlockScale of = scale_of_block(key, bits);
  const std::uint16_t bf16 = of.bf16();
  std::memcpy(scale, &bf16, sizeof(bf16));
  if (!of.finite) {
    std::memset(codes, 0, static_cast<std::size_t>(kQuantizedBlock * bits / 8));
    return;
  }
  kernels().quantize.encode(bits, of.scale, of.inverse, block.v, codes);
  std::copy_n(block.v, count, error);
}

void round_block(std::int64_t count, const float* x, float* error, std::uint8_t* codes) {
  auto* rounded = reinterpret_cast<std::uint16_t*>(codes);
  kernels().quantize.round_to_bf16(x, error, rounded, count);
  std::fill(rounded + count, rounded + kQuantizedBlock, std::uint16_t{0});
}

}  // namespace

void quantize(Context& ctx, const Packing& packing, const Tensor& x, const Tensor& error,
              const Tensor& packed) {
  // What follows the last scale of a part.
  parallel_ranges(ctx, packing.parts, 1, [&](std::int64_t part, std::int64_t /*end*/) {
    const std::int64_t scales_end = packing.bits < 16
                                        ? packing.scales_at() + 2 * packing.blocks_of_part()
                                        : packing.part_bytes();
    std::uint8_t* at = packed.data<std::uint8_t>() + part * packing.part_bytes();
    std::fill(at + scales_end, at + packing.part_bytes(), std::uint8_t{0});
  });
  for_blocks(ctx, packing, [&](const QuantizedPlace& place) {
    std::uint8_t* bytes = packed.data<std::uint8_t>();
    // A block without elements reads and writes none.
    const float* from = x.data<float>() + (place.count > 0 ? place.first : 0);
    Values none;
    float* lost = none.v;
    if (error.defined()) {
      lost = error.data<float>() + (place.count > 0 ? place.first : 0);
    } else {
      std::fill_n(none.v, kQuantizedBlock, 0.0f);
    }
    if (packing.bits == 16) {
      round_block(place.count, from, lost, bytes + place.codes);
    } else {
      quantize_block(packing.bits, place.count, from, lost, bytes + place.codes,
                     bytes + place.scale);
    }
  });
}

void dequantize(Context& ctx, const Packing& packing, const Tensor& packed, const Tensor& y) {
  for_blocks(ctx, packing, [&](const QuantizedPlace& place) {
    if (place.count == 0) return;
    const std::uint8_t* bytes = packed.data<std::uint8_t>();
    float* to = y.data<float>() + place.first;
    if (packing.bits == 16) {
      kernels().elementwise.from_bf16(reinterpret_cast<const std::uint16_t*>(bytes + place.codes),
                                      to, place.count);
      return;
    }
    BFloat16 scale;
    std::memcpy(&scale.bits, bytes + place.scale, sizeof(scale.bits));
    const auto factor = static_cast<float>(scale);
    if (place.count == kQuantizedBlock) {
      kernels().quantize.decode(packing.bits, factor, bytes + place.codes, to);
      return;
    }
    Values block;
    kernels().quantize.decode(packing.bits, factor, bytes + place.codes, block.v);
    std::copy_n(block.v, place.count, to);
  });
}

}  // namespace trireme::ops::cpu
