// Into what algorithms cut their buffers, for those who predict them.
#pragma once

#include <cstddef>

namespace trireme {

// A buffer has at most this many segments, unless workspace demands more. More segments shorten the
// time until all links are busy, and cost messages.
inline constexpr std::size_t kMostSegments = 32;
// A message of this size costs a network more time than its start.
inline constexpr std::size_t kWorthwhileBytes = std::size_t{64} << 10;

}  // namespace trireme
