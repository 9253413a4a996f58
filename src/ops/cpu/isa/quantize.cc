// Compiled without contraction to fused multiply-adds: codes are the same on every instruction set.
#include "ops/cpu/isa/simd_math.h"
#include "ops/cpu/isa/tables.h"

namespace trireme::ops::cpu::TRIREME_ISA {
namespace {

constexpr std::int64_t kBlock = 256;

std::uint32_t join(const float* x, const float* error, std::int64_t n, float* v) {
  // The largest of the keys (ops/quantized.h), as signed numbers: SSE2 compares no others.
  std::int32_t largest = INT32_MIN;
#pragma omp simd reduction(max : largest)
  for (std::int64_t i = 0; i < n; ++i) {
    v[i] = x[i] + error[i];
    const std::uint32_t word = float_to_bits(v[i]);
    const auto key = static_cast<std::int32_t>((word << 1 | (~word >> 31)) ^ 0x80000000u);
    largest = key > largest ? key : largest;
  }
  for (std::int64_t i = n; i < kBlock; ++i) v[i] = 0.0f;
  return static_cast<std::uint32_t>(largest) ^ 0x80000000u;
}

template <int kBits>
TRIREME_INLINE void encode_block(float scale, float inverse, float* v, std::uint8_t* codes) {
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  constexpr float kTop = (1 << (kBits - 1)) - 1;
  constexpr int kMask = (1 << kBits) - 1, kShares = 8 / kBits, kBytes = kBlock / kShares;
  std::uint8_t code[kBlock];
#pragma omp simd
  for (int i = 0; i < kBlock; ++i) {
    const float exact = v[i] * inverse;
    const float shifted = (exact > kTop ? kTop : exact) + kRound;
    code[i] = static_cast<std::uint8_t>(float_to_bits(shifted) & kMask);
    v[i] -= (shifted - kRound) * scale;
  }
#pragma omp simd
  for (int j = 0; j < kBytes; ++j) {
    int byte = 0;
    for (int share = 0; share < kShares; ++share) {
      byte |= code[share * kBytes + j] << (share * kBits);
    }
    codes[j] = static_cast<std::uint8_t>(byte);
  }
}

void encode(int bits, float scale, float inverse, float* v, std::uint8_t* codes) {
  if (bits == 8) return encode_block<8>(scale, inverse, v, codes);
  if (bits == 4) return encode_block<4>(scale, inverse, v, codes);
  encode_block<2>(scale, inverse, v, codes);
}

template <int kBits>
TRIREME_INLINE void decode_block(float scale, const std::uint8_t* codes, float* y) {
  constexpr int kShares = 8 / kBits, kBytes = kBlock / kShares;
  for (int share = 0; share < kShares; ++share) {
    const int up = 32 - kBits * (share + 1);  // the code's sign comes to the top
#pragma omp simd
    for (int j = 0; j < kBytes; ++j) {
      const auto code = static_cast<std::int32_t>(std::uint32_t{codes[j]} << up);
      y[share * kBytes + j] = static_cast<float>(code >> (32 - kBits)) * scale;
    }
  }
}

void decode(int bits, float scale, const std::uint8_t* codes, float* y) {
  if (bits == 8) return decode_block<8>(scale, codes, y);
  if (bits == 4) return decode_block<4>(scale, codes, y);
  decode_block<2>(scale, codes, y);
}

void round_to_bf16(const float* x, float* error, std::uint16_t* codes, std::int64_t n) {
#pragma omp simd
  for (std::int64_t i = 0; i < n; ++i) {
    const float v = x[i] + error[i];
    const std::uint16_t code = fp32_to_bf16(v);
    codes[i] = code;
    error[i] = (code & 0x7f80u) == 0x7f80u ? error[i] : v - bf16_to_fp32(code);
  }
}

}  // namespace

extern const QuantizeKernels kQuantize = {join, encode, decode, round_to_bf16};

}  // namespace trireme::ops::cpu::TRIREME_ISA
