// The rate of a link that nothing limits.
#pragma once

#include <limits>

namespace trireme {

inline constexpr double kNoLimit = std::numeric_limits<double>::max();  // bytes per second

}  // namespace trireme
