// All 2^32 values in two halves, by the kernels of the best instruction set that the processor has.
#include "trireme/tensor/split_float.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <numeric>
#include <thread>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/tensor/dtype.h"

#include "ops/cpu/kernels.h"

namespace trireme::ops::cpu {
namespace {

float of_bits(std::uint32_t word) {
  return std::bit_cast<float>(word);
}
double of_bf16(std::uint32_t bits) {
  return of_bits(bits << 16);
}
bool is_nan(std::uint32_t word) {
  return (word & 0x7fffffffu) > 0x7f800000u;
}

// Values with one upper half, a piece at a time, and what both kernels make of them.
class OneUpperHalf {
 public:
  OneUpperHalf() { std::iota(all_low_.begin(), all_low_.end(), std::uint16_t{0}); }

  // Returns whether all are right.
  bool holds(std::uint32_t upper) {
    for (std::uint32_t begin = 0; begin < kLow; begin += kPiece) {
      if (begin % (kLow / 2) == 0) {
        std::ranges::fill(expected_high_, static_cast<std::uint16_t>(upper + (begin == 0 ? 0 : 1)));
      }
      if (!holds(upper << 16, begin)) return false;
    }
    return true;
  }

 private:
  static constexpr std::size_t kLow = std::size_t{1} << 16, kPiece = 4096;

  bool holds(std::uint32_t word, std::uint32_t begin) {
    for (std::uint32_t i = 0; i < kPiece; ++i) values_[i] = of_bits(word + begin + i);
    const ElementwiseKernels& k = kernels().elementwise;
    k.split(values_.data(), high_.data(), low_.data(), kPiece);
    k.join(high_.data(), low_.data(), back_.data(), kPiece);
    const std::size_t plain = (word & 0x7f800000u) != 0x7f800000u     ? kPiece
                              : (word & 0x7f0000u) == 0 && begin == 0 ? 1  // infinity
                                                                      : 0;
    return std::memcmp(back_.data(), values_.data(), plain * sizeof(float)) == 0 &&
           std::memcmp(low_.data(), all_low_.data() + begin, plain * sizeof(low_[0])) == 0 &&
           std::memcmp(high_.data(), expected_high_.data(), plain * sizeof(high_[0])) == 0 &&
           are_nan(plain, (word & 0x80000000u) != 0);
  }
  bool are_nan(std::size_t begin, bool negative) const {
    for (std::size_t i = begin; i < kPiece; ++i) {
      if (!std::isnan(back_[i]) || std::signbit(back_[i]) != negative) return false;
      if (!is_nan(std::uint32_t{high_[i]} << 16) || (high_[i] >> 15 != 0) != negative) return false;
    }
    return true;
  }

  std::vector<float> values_ = std::vector<float>(kPiece), back_ = values_;
  std::vector<std::uint16_t> high_ = std::vector<std::uint16_t>(kPiece), low_ = high_;
  std::vector<std::uint16_t> expected_high_ = high_, all_low_ = std::vector<std::uint16_t>(kLow);
};

TEST(SplitFloat, AllValuesComeBack) {
  constexpr std::uint32_t kUpper = 0x10000u;
  const unsigned threads = std::max(2u, std::thread::hardware_concurrency());
  std::vector<std::vector<std::uint32_t>> wrong(threads);
  std::vector<std::thread> running;
  for (unsigned thread = 0; thread < threads; ++thread) {
    running.emplace_back([&, thread] {
      OneUpperHalf one;
      for (std::uint32_t upper = thread; upper < kUpper; upper += threads) {
        if (!one.holds(upper)) wrong[thread].push_back(upper);
      }
    });
  }
  for (std::thread& one : running) one.join();
  for (const std::vector<std::uint32_t>& of_thread : wrong) {
    EXPECT_TRUE(of_thread.empty())
        << of_thread.size() << ", the first with upper half " << std::hex << of_thread.front();
  }
}

// The upper half is the nearest value of bf16: the one that rounding to even gives, but at ties the
// one away from zero. Below infinity, which is where 2^128 would be.
TEST(SplitFloat, RoundsToTheNearestAndTiesAwayFromZero) {
  for (std::uint32_t upper = 0; upper < 0x10000u; ++upper) {
    if ((upper & 0x7f80u) == 0x7f80u) continue;
    for (const std::uint32_t rest : {0x0u, 0x1u, 0x7fffu, 0x8000u, 0x8001u, 0xffffu}) {
      const double value = of_bits(upper << 16 | rest);
      const auto size_of = [](std::uint32_t bits) {
        return (bits & 0x7fffu) == 0x7f80u ? 0x1p128 : std::abs(of_bf16(bits));
      };
      const SplitFloat halves(static_cast<float>(value));
      const double below = std::abs(value) - size_of(upper),
                   above = size_of(upper + 1) - std::abs(value);
      ASSERT_EQ(below < 0.0 || above < 0.0, false);
      ASSERT_EQ(halves.high, above <= below ? upper + 1 : upper)
          << std::hex << upper << ' ' << rest;
      const std::uint16_t even = BFloat16(static_cast<float>(value)).bits;
      const bool differs = rest == 0x8000u && upper % 2 == 0;
      ASSERT_EQ(halves.high != even, differs) << std::hex << upper << ' ' << rest;
    }
  }
}

}  // namespace
}  // namespace trireme::ops::cpu
