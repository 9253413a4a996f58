// Functions without branches, so that loops over them become vector instructions.
#pragma once

#include <cstdint>

#define TRIREME_INLINE static inline __attribute__((always_inline))

namespace trireme::ops::cpu::TRIREME_ISA {

TRIREME_INLINE float bits_to_float(std::uint32_t bits) {
  return __builtin_bit_cast(float, bits);
}
TRIREME_INLINE std::uint32_t float_to_bits(float x) {
  return __builtin_bit_cast(std::uint32_t, x);
}

// x = n ln 2 + r with |r| <= ln 2 / 2; power is e^r by its Taylor series, whose eighth term is
// below 1e-8. For -88 <= x <= 89, or NaN, which then is in power.
struct ExpParts {
  std::int32_t n;
  float power;
};
TRIREME_INLINE ExpParts exp_parts(float x) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const float n = (x * 1.44269504f + kRound) - kRound;
  float r = x - n * 0.693359375f;  // ln 2 in two parts: the first is exact in n * part
  r = r + n * 2.12194440e-4f;
  float p = 1.0f / 5040;
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  return {static_cast<std::int32_t>(n), p};
}

TRIREME_INLINE float power_of_two(std::int32_t n) {
  return bits_to_float(static_cast<std::uint32_t>(n + 127) << 23);
}

// e^x to a relative error of 2e-7; 0 below -87.3 (where the result would be denormal), infinity
// above 88.72, NaN for NaN.
TRIREME_INLINE float exp_fp32(float x) {
  float clamped = x > 89.0f ? 89.0f : x;
  clamped = clamped < -88.0f ? -88.0f : clamped;
  const ExpParts e = exp_parts(clamped);
  // Two factors, because n may be 128 and 2^128 is not finite.
  const std::int32_t half = e.n >> 1;
  const float result = e.power * power_of_two(half) * power_of_two(e.n - half);
  return x < -87.3f ? 0.0f : result;
}

// The same for x <= 80, in fewer steps. For the softmax, where x is a score minus the maximum.
TRIREME_INLINE float exp_of_difference(float x) {
  const ExpParts e = exp_parts(x < -87.3f ? -87.3f : x);
  return x < -87.3f ? 0.0f : e.power * power_of_two(e.n);
}

TRIREME_INLINE float sigmoid_fp32(float x) {
  return 1.0f / (1.0f + exp_fp32(-x));
}

// sigmoid(x) and 1 - sigmoid(x), both to a relative error of 3e-7.
struct Sigmoid {
  float value, rest;
};
TRIREME_INLINE Sigmoid sigmoid_pair(float x) {
  float e = exp_fp32(-x);
  e = e > 1e30f ? 1e30f : e;  // infinity * 0 would be NaN
  const float value = 1.0f / (1.0f + e);
  return {value, e * value};
}

// To a relative error of 1e-6.
TRIREME_INLINE float tanh_fp32(float x) {
  const float square = x * x;
  float series = 62.0f / 2835;
  series = series * square - 17.0f / 315;
  series = series * square + 2.0f / 15;
  series = series * square - 1.0f / 3;
  const float small = x + x * square * series;
  const float large = 1.0f - 2.0f / (1.0f + exp_fp32(2.0f * x));
  return square < 0.06f ? small : large;
}

TRIREME_INLINE float bf16_to_fp32(std::uint16_t x) {
  return bits_to_float(static_cast<std::uint32_t>(x) << 16);
}

// Rounds to nearest even; NaN stays NaN (as BFloat16 does).
TRIREME_INLINE std::uint16_t fp32_to_bf16(float x) {
  const std::uint32_t word = float_to_bits(x);
  const std::uint32_t rounded = (word + 0x7fffu + ((word >> 16) & 1u)) >> 16;
  const std::uint32_t quiet = (word >> 16) | 0x40u;
  const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
  return static_cast<std::uint16_t>(nan ? quiet : rounded);
}

// The two halves of a SplitFloat, and what they make; the reasons are explained there.
TRIREME_INLINE std::uint32_t word_to_split(float x) {
  const std::uint32_t word = float_to_bits(x);
  const bool nan = (word & 0x7fffffffu) > 0x7f800000u;
  return nan ? (word & 0x80000000u) | 0x7fc00000u : word;
}
TRIREME_INLINE float split_to_fp32(std::uint16_t high, std::uint16_t low) {
  const std::uint32_t rest = (low ^ 0x8000u) - 0x8000u;
  return bits_to_float((static_cast<std::uint32_t>(high) << 16) + rest);
}

// Converts as Half does; the reasons are explained there.
TRIREME_INLINE float fp16_to_fp32(std::uint16_t x) {
  const std::uint32_t shifted = (x & 0x7fffu) << 13;
  const std::uint32_t small = float_to_bits(bits_to_float(shifted + (113u << 23)) - 0x1p-14f);
  std::uint32_t size = shifted + (112u << 23);
  size = shifted >= 0x0f800000u ? shifted + (224u << 23) : size;
  size = shifted < 0x00800000u ? small : size;
  return bits_to_float(size | (x & 0x8000u) << 16);
}

TRIREME_INLINE std::uint16_t fp32_to_fp16(float x) {
  const std::uint32_t word = float_to_bits(x);
  const std::uint32_t size = word & 0x7fffffffu;
  const std::uint32_t small = float_to_bits(bits_to_float(size) + 0.5f) - float_to_bits(0.5f);
  std::uint32_t half = (size - (112u << 23) + 0xfffu + ((size >> 13) & 1u)) >> 13;
  half = size < 0x38800000u ? small : half;
  half = size >= 0x47800000u ? 0x7c00u : half;
  half = size > 0x7f800000u ? 0x7e00u : half;
  return static_cast<std::uint16_t>(half | (word >> 16 & 0x8000u));
}

}  // namespace trireme::ops::cpu::TRIREME_ISA
