// How the elements of a sum of squares lie in units, the same on every device.
#pragma once

#include "trireme/ops/lengths.h"

namespace trireme::ops {

// The number of units that elements [first, first + count) lie in. count >= 1.
inline std::int64_t units_of_squares(std::int64_t first, std::int64_t count) {
  return (first + count - 1) / kSquaresUnit - first / kSquaresUnit + 1;
}

}  // namespace trireme::ops
