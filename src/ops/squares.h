// How the elements of a sum of squares lie in units, the same on every device.
#pragma once

#include <algorithm>
#include <span>

#include "trireme/ops/lengths.h"

namespace trireme::ops {

// The number of units that elements [first, first + count) lie in.
inline std::int64_t units_of_squares(std::int64_t first, std::int64_t count) {
  return count == 0 ? 0 : (first + count - 1) / kSquaresUnit - first / kSquaresUnit + 1;
}
inline std::int64_t units_of_squares(std::span<const SquaresPart> parts) {
  std::int64_t units = 0;
  for (const auto& [x, first] : parts) units += units_of_squares(first, x.elements());
  return units;
}

// Calls body with at most `most` of the parts at a time, in their order, and so many units that
// their sums take little memory.
template <class Body>
void for_some(std::span<const SquaresPart> parts, std::size_t most, const Body& body) {
  constexpr std::int64_t kUnits = std::int64_t{1} << 19;  // 128 Mi elements; one part may have more
  while (!parts.empty()) {
    std::size_t count = 1;
    while (count < std::min(most, parts.size()) &&
           units_of_squares(parts.first(count + 1)) <= kUnits) {
      ++count;
    }
    body(parts.first(count));
    parts = parts.subspan(count);
  }
}

}  // namespace trireme::ops
