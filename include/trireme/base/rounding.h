// Division and multiples that round up. All numbers are at least 0, divisors and units at least 1.
#pragma once

#include <cstdint>

namespace trireme {

constexpr std::int64_t quotient_up(std::int64_t number, std::int64_t divisor) {
  return (number + divisor - 1) / divisor;
}

// Returns the smallest multiple of `unit` that is not below `number`.
constexpr std::int64_t rounded_up(std::int64_t number, std::int64_t unit) {
  return quotient_up(number, unit) * unit;
}

}  // namespace trireme
