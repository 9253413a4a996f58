// Sums of fp64 numbers without rounding, so that their order does not matter.
#pragma once

#include <array>
#include <bit>
#include <cmath>
#include <cstdint>
#include <span>

#include "trireme/base/on_device.h"

namespace trireme {

// A sum is a fixed-point number that reaches over all of fp64: kExactDigits digits of kExactBits
// bits, the lowest first, in units of 2^-1074. A digit is kept in 64 bits with a sign, so that
// digits can be added up 2^33 times before they overflow, by one rank or by all; an all-reduce of
// integers adds sums of ranks. After the digits come counts of NaN, infinity and -infinity.
inline constexpr int kExactBits = 30;
inline constexpr int kExactDigits = 70;
inline constexpr int kExactLimbs = kExactDigits + 3;

// Returns what adding `value` adds to a limb.
TRIREME_ON_DEVICE inline std::int64_t exact_limb(std::uint64_t value, int limb) {
  const bool negative = (value >> 63) != 0;
  const int exponent = static_cast<int>(value >> 52 & 0x7ff);
  const std::uint64_t fraction = value & 0xfffffffffffffu;
  if (exponent == 0x7ff) {
    const int kind = fraction != 0 ? 0 : negative ? 2 : 1;
    return limb == kExactDigits + kind ? 1 : 0;
  }
  if (limb >= kExactDigits) return 0;
  // The significand is an integer, times 2^place of the unit.
  const std::uint64_t significand = exponent == 0 ? fraction : fraction | std::uint64_t{1} << 52;
  const int place = exponent == 0 ? 0 : exponent - 1;
  const int shift = kExactBits * limb - place;  // of the significand, down to this digit
  if (shift <= -kExactBits || shift >= 53) return 0;
  constexpr std::uint64_t kMask = (std::uint64_t{1} << kExactBits) - 1;
  const std::uint64_t digit = (shift < 0 ? significand << -shift : significand >> shift) & kMask;
  return negative ? -static_cast<std::int64_t>(digit) : static_cast<std::int64_t>(digit);
}

// Returns the sum, rounded to nearest; infinity if it is beyond fp64, NaN as fp64 would have it.
// `limbs` (kExactLimbs) are changed.
TRIREME_ON_DEVICE inline double take_exact_value(std::int64_t* limbs) {
  const std::int64_t nans = limbs[kExactDigits], up = limbs[kExactDigits + 1];
  const std::int64_t down = limbs[kExactDigits + 2];
  if (nans > 0 || (up > 0 && down > 0)) return NAN;
  if (up > 0) return INFINITY;
  if (down > 0) return -INFINITY;
  constexpr std::int64_t kBase = std::int64_t{1} << kExactBits;
  // Digits from 0 to kBase - 1, and what is carried out of the last one.
  const auto carry = [&] {
    std::int64_t carried = 0;
    for (int i = 0; i < kExactDigits; ++i) {
      const std::int64_t digit = limbs[i] + carried;
      carried = digit >> kExactBits;  // rounds down
      limbs[i] = digit - carried * kBase;
    }
    return carried;
  };
  std::int64_t carried = carry();
  const double sign = carried < 0 ? -1.0 : 1.0;
  if (carried < 0) {
    for (int i = 0; i < kExactDigits; ++i) limbs[i] = -limbs[i];
    carried = carry() - carried;
  }
  if (carried > 0) return sign * INFINITY;
  int top = kExactDigits - 1;
  while (top > 0 && limbs[top] == 0) --top;
  // The highest digits as one number of at least 55 bits, where there are so many. Its last bit
  // says whether anything follows.
  const auto digit = [&](int i) { return i < 0 ? 0 : static_cast<std::uint64_t>(limbs[i]); };
  int length = 0;
  while (digit(top) >> length != 0) ++length;
  const int room = 64 - length - kExactBits, third = room < kExactBits ? room : kExactBits;
  const int left = kExactBits - third;  // bits of the third digit that find no room
  std::uint64_t leading = digit(top) << kExactBits | digit(top - 1);
  leading = leading << third | digit(top - 2) >> left;
  bool more = (digit(top - 2) & ((std::uint64_t{1} << left) - 1)) != 0;
  for (int i = 0; i < top - 2; ++i) more = more || limbs[i] != 0;
  if (more) leading |= 1;
  return sign * ldexp(static_cast<double>(leading), kExactBits * (top - 1) - third - 1074);
}

// A sum on the host.
class ExactSum {
 public:
  void add(double value) {
    const auto bits = std::bit_cast<std::uint64_t>(value);
    // At most three digits are not zero, or one count.
    const int lowest = static_cast<int>(bits >> 52 & 0x7ff) / kExactBits - 1;
    const int begin = lowest < 0 ? 0 : lowest, end = begin + 4;
    for (int i = begin; i < end && i < kExactDigits; ++i) at(i) += exact_limb(bits, i);
    for (int i = kExactDigits; i < kExactLimbs; ++i) at(i) += exact_limb(bits, i);
  }
  double value() const {
    auto copy = limbs_;
    return take_exact_value(copy.data());
  }
  // The limbs, to be added to those of other ranks.
  std::span<std::int64_t> limbs() { return limbs_; }

 private:
  std::int64_t& at(int limb) { return limbs_[static_cast<std::size_t>(limb)]; }

  std::array<std::int64_t, kExactLimbs> limbs_{};
};

}  // namespace trireme
