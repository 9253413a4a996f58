// Ranges and boxes of the elements of a row-major tensor.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

#include "trireme/base/shape.h"

namespace trireme {

// A range of elements [begin, end).
struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;

  std::int64_t size() const { return end - begin; }
  bool empty() const { return begin >= end; }
  bool operator==(const FlatRange&) const = default;
};

// The elements that are in both ranges. If there are none, the result is empty and begins where the
// later of the two begins.
inline FlatRange intersection(const FlatRange& a, const FlatRange& b) {
  const std::int64_t begin = std::max(a.begin, b.begin);
  return {begin, std::max(begin, std::min(a.end, b.end))};
}

// A hyperrectangle: elements [start[d], start[d] + count[d]) of each dimension d.
struct Box {
  std::vector<std::int64_t> start;
  std::vector<std::int64_t> count;

  std::int64_t elements() const;  // 1 for no dimensions
};

// Returns the elements [begin, end) of a row-major tensor of shape `extent` as boxes, in order. The
// elements of each box are contiguous in the tensor. For d dimensions there are at most 2d - 1
// boxes.
std::vector<Box> decompose(const Shape& extent, std::int64_t begin, std::int64_t end);

}  // namespace trireme
