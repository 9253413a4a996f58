// Element types and their conversions.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace trireme {

enum class DType : std::uint8_t { kF32, kBF16, kF16, kF64, kI32, kI64, kU16, kU8, kE4M3 };

std::size_t size_of(DType dtype);       // bytes per element
std::string_view name_of(DType dtype);  // "fp32", "bf16", "fp16", ...

// bfloat16: the upper half of a float, rounded to nearest even; NaN stays NaN.
struct BFloat16 {
  std::uint16_t bits;

  BFloat16() = default;
  explicit constexpr BFloat16(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
    bits = static_cast<std::uint16_t>(nan ? (word >> 16) | 0x40u
                                          : (word + 0x7fffu + ((word >> 16) & 1u)) >> 16);
  }
  explicit constexpr operator float() const {
    return std::bit_cast<float>(static_cast<std::uint32_t>(bits) << 16);
  }
};
static_assert(sizeof(BFloat16) == 2);

// IEEE binary16: 5 bits of exponent, 10 of fraction. Values are rounded to nearest even, also if
// the result is subnormal (below 2^-14). From 65520 on a value becomes infinite. NaN stays NaN. The
// conversions have no branches: they compute all cases, so that loops over them can be vectorized.
struct Half {
  std::uint16_t bits;

  Half() = default;
  explicit constexpr Half(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t size = word & 0x7fffffffu;
    // The exponent's bias is 15, not 127. A carry from rounding moves up into the exponent.
    std::uint32_t half = (size - (112u << 23) + 0xfffu + ((size >> 13) & 1u)) >> 13;
    // Below 2^-14: the last place of a sum with 1/2 is the last place of a subnormal, so the
    // addition rounds.
    const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0.5f) -
                                std::bit_cast<std::uint32_t>(0.5f);
    half = size < 0x38800000u ? small : half;
    half = size >= 0x47800000u ? 0x7c00u : half;  // 2^16
    half = size > 0x7f800000u ? 0x7e00u : half;   // NaN
    bits = static_cast<std::uint16_t>(half | (word >> 16 & 0x8000u));
  }
  explicit constexpr operator float() const {
    const std::uint32_t shifted = (bits & 0x7fffu) << 13;
    // Zero and subnormal: (2^-14 + x) - 2^-14.
    const auto small =
        std::bit_cast<std::uint32_t>(std::bit_cast<float>(shifted + (113u << 23)) - 0x1p-14f);
    std::uint32_t size = shifted + (112u << 23);
    size = shifted >= 0x0f800000u ? shifted + (224u << 23) : size;  // infinity and NaN
    size = shifted < 0x00800000u ? small : size;
    return std::bit_cast<float>(size | (bits & 0x8000u) << 16);
  }
};
static_assert(sizeof(Half) == 2);

// 8 bits: 4 of exponent, 3 of fraction, no infinities ("OCP 8-bit floating point specification",
// 2023). Values are rounded to nearest even, also below 2^-6, where they are multiples of 2^-9. The
// largest is 448; what is beyond 464 becomes NaN, and NaN stays NaN. No branches, like Half.
struct E4M3 {
  std::uint8_t bits;

  E4M3() = default;
  explicit constexpr E4M3(float value) {
    const auto word = std::bit_cast<std::uint32_t>(value);
    const std::uint32_t size = word & 0x7fffffffu;
    // The exponent's bias is 7, not 127. A carry from rounding moves up into the exponent.
    std::uint32_t code = (size - (120u << 23) + 0x7ffffu + ((size >> 20) & 1u)) >> 20;
    // Below 2^-6: the last place of a sum with 2^14 is that of a subnormal, so the addition rounds.
    const std::uint32_t small = std::bit_cast<std::uint32_t>(std::bit_cast<float>(size) + 0x1p14f) -
                                std::bit_cast<std::uint32_t>(0x1p14f);
    code = size < (121u << 23) ? small : code;
    code = size > 0x43e80000u ? 0x7fu : code;  // 464 is halfway to the next, which does not exist
    bits = static_cast<std::uint8_t>(code | (word >> 24 & 0x80u));
  }
  explicit constexpr operator float() const {
    const std::uint32_t size = bits & 0x7fu;
    std::uint32_t word = (size << 20) + (120u << 23);
    word = size < 8u ? std::bit_cast<std::uint32_t>(static_cast<float>(size) * 0x1p-9f) : word;
    word = size == 0x7fu ? 0x7fc00000u : word;
    return std::bit_cast<float>(word | (bits & 0x80u) << 24);
  }
};
static_assert(sizeof(E4M3) == 1);

// dtype_of<float>() == DType::kF32, and so on.
template <class T>
constexpr DType dtype_of();
template <>
constexpr DType dtype_of<float>() {
  return DType::kF32;
}
template <>
constexpr DType dtype_of<BFloat16>() {
  return DType::kBF16;
}
template <>
constexpr DType dtype_of<Half>() {
  return DType::kF16;
}
template <>
constexpr DType dtype_of<double>() {
  return DType::kF64;
}
template <>
constexpr DType dtype_of<std::int32_t>() {
  return DType::kI32;
}
template <>
constexpr DType dtype_of<std::int64_t>() {
  return DType::kI64;
}
template <>
constexpr DType dtype_of<std::uint16_t>() {
  return DType::kU16;
}
template <>
constexpr DType dtype_of<std::uint8_t>() {
  return DType::kU8;
}
template <>
constexpr DType dtype_of<E4M3>() {
  return DType::kE4M3;
}

}  // namespace trireme
