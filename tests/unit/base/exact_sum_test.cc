// Exact sums: against long additions that cannot round, in any order, and at the ends of fp64.
#include "trireme/base/exact_sum.h"

#include <algorithm>
#include <limits>
#include <random>
#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kLargest = std::numeric_limits<double>::max();
constexpr double kSmallest = std::numeric_limits<double>::denorm_min();

double sum_of(const std::vector<double>& terms) {
  ExactSum sum;
  for (const double term : terms) sum.add(term);
  return sum.value();
}

TEST(ExactSum, OneNumberIsItself) {
  std::mt19937_64 draw(1);
  for (int i = 0; i < 20000; ++i) {
    const auto value = std::bit_cast<double>(draw());
    if (!std::isfinite(value)) continue;
    EXPECT_EQ(sum_of({value}), value);
  }
  for (const double value : {0.0, 1.0, -1.0, kLargest, -kLargest, kSmallest, -kSmallest,
                             std::numeric_limits<double>::min()}) {
    EXPECT_EQ(sum_of({value}), value);
  }
}

TEST(ExactSum, TwoNumbersAreRoundedAsFp64Rounds) {
  std::mt19937_64 draw(2);
  std::uniform_int_distribution<int> exponent(-60, 60);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  for (int i = 0; i < 20000; ++i) {
    const double a = std::ldexp(uniform(draw), exponent(draw));
    const double b = std::ldexp(uniform(draw), exponent(draw));
    EXPECT_EQ(sum_of({a, b}), a + b);
  }
  // Halfway cases go to even, and what follows far behind decides them.
  const double half = std::ldexp(1.0, -53);
  EXPECT_EQ(sum_of({1.0, half}), 1.0);
  EXPECT_EQ(sum_of({1.0, half, std::ldexp(1.0, -1000)}), 1.0 + 2 * half);
  EXPECT_EQ(sum_of({1.0, half, -std::ldexp(1.0, -1000)}), 1.0);
  EXPECT_EQ(sum_of({-1.0, -half, -kSmallest}), -1.0 - 2 * half);
}

TEST(ExactSum, NoOrderChangesABit) {
  std::mt19937_64 draw(3);
  std::uniform_int_distribution<int> exponent(-200, 200);
  std::uniform_real_distribution<double> uniform(-1.0, 1.0);
  std::vector<double> terms;
  for (int i = 0; i < 2000; ++i) terms.push_back(std::ldexp(uniform(draw), exponent(draw)));
  const double expected = sum_of(terms);
  bool plain_differs = false;
  for (int i = 0; i < 20; ++i) {
    std::ranges::shuffle(terms, draw);
    EXPECT_EQ(sum_of(terms), expected);
    // Divided among ranks, whose limbs are added.
    ExactSum all;
    for (std::size_t begin = 0; begin < terms.size(); begin += 300) {
      ExactSum part;
      for (std::size_t j = begin; j < std::min(begin + 300, terms.size()); ++j) part.add(terms[j]);
      for (std::size_t limb = 0; limb < kExactLimbs; ++limb)
        all.limbs()[limb] += part.limbs()[limb];
    }
    EXPECT_EQ(all.value(), expected);
    double plain = 0.0;
    for (const double term : terms) plain += term;
    plain_differs = plain_differs || plain != expected;
  }
  EXPECT_TRUE(plain_differs);
  const std::size_t count = terms.size();
  for (std::size_t i = 0; i < count; ++i) terms.push_back(-terms[i]);
  EXPECT_EQ(sum_of(terms), 0.0);
}

TEST(ExactSum, EndsOfFp64) {
  EXPECT_EQ(sum_of({kLargest, kLargest}), kInfinity);
  EXPECT_EQ(sum_of({-kLargest, -kLargest}), -kInfinity);
  EXPECT_EQ(sum_of({kLargest, kLargest, -kLargest}), kLargest);  // no overflow on the way
  EXPECT_EQ(sum_of(std::vector<double>(100000, -kLargest)), -kInfinity);
  EXPECT_EQ(sum_of(std::vector<double>(1000, kSmallest)), 1000 * kSmallest);
  EXPECT_EQ(sum_of({kInfinity, 1.0}), kInfinity);
  EXPECT_EQ(sum_of({-kInfinity, kLargest}), -kInfinity);
  EXPECT_TRUE(std::isnan(sum_of({kInfinity, -kInfinity})));
  EXPECT_TRUE(std::isnan(sum_of({std::numeric_limits<double>::quiet_NaN(), kInfinity})));
}

}  // namespace
}  // namespace trireme
