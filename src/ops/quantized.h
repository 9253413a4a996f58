// What quantized blocks have in common on every device (trireme/ops/quantize.h).
#pragma once

#include <bit>
#include <cstdint>

#include "trireme/base/on_device.h"
#include "trireme/ops/quantize.h"

namespace trireme::ops {

// Where a block lies: its first element, how many there are (0 to 256), and bytes of `packed`.
struct QuantizedPlace {
  std::int64_t first, count;
  std::int64_t codes, scale;
};

// The numbers of a Packing, for kernels.
struct QuantizedPlaces {
  std::int64_t elements, blocks_of_part, block_bytes, scales_at, part_bytes;

  explicit QuantizedPlaces(const Packing& packing)
      : elements(packing.elements),
        blocks_of_part(packing.blocks_of_part()),
        block_bytes(packing.block_bytes()),
        scales_at(packing.scales_at()),
        part_bytes(packing.part_bytes()) {}

  TRIREME_ON_DEVICE QuantizedPlace of(std::int64_t block) const {
    const std::int64_t part = block / blocks_of_part, number = block - part * blocks_of_part;
    const std::int64_t first = block * kQuantizedBlock, left = elements - first;
    const std::int64_t count = left < 0 ? 0 : left < kQuantizedBlock ? left : kQuantizedBlock;
    const std::int64_t begin = part * part_bytes;
    return {first, count, begin + number * block_bytes, begin + scales_at + number * 2};
  }
};

// A number by whose maximum the element of the largest magnitude is found: NaN before infinity, and
// the positive one of two that are as large.
TRIREME_ON_DEVICE inline std::uint32_t magnitude_key(float v) {
  const auto word = std::bit_cast<std::uint32_t>(v);
  return word << 1 | (~word >> 31);
}

struct BlockScale {
  float scale;
  float inverse;  // 1 / scale, or 0 if the scale is 0 or NaN
  bool finite;    // whether the block is: otherwise the scale is NaN

  // The upper half of the scale, whose lower one is 0.
  TRIREME_ON_DEVICE std::uint16_t bf16() const {
    return static_cast<std::uint16_t>(std::bit_cast<std::uint32_t>(scale) >> 16);
  }
};

// `key`: the largest of the block.
TRIREME_ON_DEVICE inline BlockScale scale_of_block(std::uint32_t key, int bits) {
  constexpr std::uint32_t kMost = 0x7f000000u, kLeast = 0x00800000u;  // 2^127 and 2^-126
  const std::uint32_t magnitude = key >> 1;
  if (magnitude == 0) return {0.0f, 0.0f, true};
  if (magnitude > kMost) return {std::bit_cast<float>(0x7fc00000u), 0.0f, false};
  const float exact = std::bit_cast<float>(magnitude) / static_cast<float>(1 << (bits - 1));
  std::uint32_t word = (std::bit_cast<std::uint32_t>(exact) + 0xffffu) & 0xffff0000u;
  word = word < kLeast ? kLeast : word;
  const float scale =
      std::bit_cast<float>(word | key << 31);  // negative if the largest is positive
  return {scale, 1.0f / scale, true};
}

}  // namespace trireme::ops
