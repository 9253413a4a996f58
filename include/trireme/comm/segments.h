// The segments into which algorithms cut their buffers, for those who predict them.
#pragma once

#include <algorithm>
#include <cstddef>

namespace trireme {

// A buffer has at most this many segments, unless workspace demands more. More segments shorten the
// time until all links are busy, and cost messages.
inline constexpr std::size_t kMostSegments = 32;
// Reductions around a ring have so many segments, all under way at once, or a multiple of that if
// workspace demands more: each round costs a latency, however many segments share it, and while one
// segment is reduced, the others are on the wire.
inline constexpr std::size_t kRingSegments = 4;
// A message of this size costs a network more time than its start, unless something better is known
// (CommunicatorPlan::worthwhile_bytes).
inline constexpr std::size_t kWorthwhileBytes = std::size_t{64} << 10;
// What a rank sends to one partner before it is the next one's turn, unless that makes more than
// kMostSegments turns. Shorter turns cost time, since all wait at the end of each.
inline constexpr std::size_t kTurnBytes = std::size_t{16} << 20;

// Cuts `count` elements of `element` bytes into segments of equal length; returns the length, which
// is at least 1: at most `segments` segments, but none of less than `least` bytes without need, and
// none of more than `most` bytes.
inline std::size_t segment_length(std::size_t count, std::size_t element, std::size_t least,
                                  std::size_t most, std::size_t segments = kMostSegments) {
  const std::size_t even = (count + segments - 1) / segments;
  return std::max<std::size_t>(std::min(std::max(even, least / element), most / element), 1);
}

inline std::size_t segments_of(std::size_t count, std::size_t length) {
  return (count + length - 1) / length;
}

}  // namespace trireme
