// Fp32 values in two halves of 16 bits, of which the upper one is a value of bf16.
#pragma once

#include <bit>
#include <cstdint>

namespace trireme {

// A float as its rounding to bfloat16 and 16 bits more, from which every float but NaN comes back
// as it was. So its ties are rounded away from zero: the float's bits are those of the upper half
// and the low bits, as a number from -2^15 to 2^15 - 1, on top of it. A tie to even would need
// 2^15. NaN stays a NaN of its sign, in both.
struct SplitFloat {
  std::uint16_t high;  // the bits of a BFloat16
  std::uint16_t low;

  SplitFloat() = default;
  constexpr SplitFloat(std::uint16_t upper, std::uint16_t rest) : high(upper), low(rest) {}
  explicit constexpr SplitFloat(float value) {
    auto word = std::bit_cast<std::uint32_t>(value);
    word = (word & 0x7fffffffu) > 0x7f800000u ? (word & 0x80000000u) | 0x7fc00000u : word;
    high = static_cast<std::uint16_t>((word + 0x8000u) >> 16);
    low = static_cast<std::uint16_t>(word & 0xffffu);
  }
  explicit constexpr operator float() const {
    const std::uint32_t rest = (low ^ 0x8000u) - 0x8000u;  // with its sign
    return std::bit_cast<float>((static_cast<std::uint32_t>(high) << 16) + rest);
  }
};

}  // namespace trireme
