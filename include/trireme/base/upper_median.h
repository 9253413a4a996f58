// The median of a few measured values.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

namespace trireme {

// For an even number of values returns the upper one of the two in the middle, so that half of all
// may be slower, or lower, than the rest. Takes at least one.
template <class T>
T upper_median(std::vector<T> values) {
  const auto middle = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), middle, values.end());
  return *middle;
}

}  // namespace trireme
