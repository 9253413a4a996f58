// The scales of blocks in e4m3, the same on every device (trireme/ops/block_scaled.h).
#pragma once

#include <bit>
#include <cstdint>

#include "trireme/base/on_device.h"

namespace trireme::ops {

struct PowerScale {
  float scale;
  float inverse;  // 1 / scale, or 0 if a value of the block is not finite: then the scale is NaN
};

// The magnitude of a bf16 value as its bits: larger for larger ones, and largest for what is not
// finite.
TRIREME_ON_DEVICE inline std::uint32_t bf16_magnitude(std::uint32_t bits) {
  return bits & 0x7fffu;
}

// `largest`: that of the magnitudes of a block.
TRIREME_ON_DEVICE inline PowerScale power_scale(std::uint32_t largest) {
  constexpr std::uint32_t kInfinity = 0x7f80u;
  constexpr std::uint32_t kLeast = 127 - 60;  // the exponent's field of 2^-60
  if (largest >= kInfinity) return {std::bit_cast<float>(0x7fc00000u), 0.0f};
  // 448 is 1.75 * 2^8, and 0x60 the fraction of 1.75.
  const std::uint32_t above = (largest >> 7) + ((largest & 0x7fu) > 0x60u ? 1u : 0u);
  const std::uint32_t field = above < kLeast + 8 ? kLeast : above - 8;
  return {std::bit_cast<float>(field << 23), std::bit_cast<float>((254u - field) << 23)};
}

}  // namespace trireme::ops
