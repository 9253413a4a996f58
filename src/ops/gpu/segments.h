// Segments of memory that one launch works on. They are told in the kernel's arguments, which are
// copied when the kernel is queued: no memory could be overwritten before the device has read it,
// and a captured graph keeps them.
#pragma once

#include "ops/gpu/device_code.h"

namespace trireme::ops::gpu {

template <class Segment, int kMost>
struct SegmentTable {
  std::int64_t work = 0;  // that threads share out: that of the first segment comes first
  int count = 0;
  std::int64_t begin[kMost] = {};  // where each segment's work begins
  Segment segments[kMost] = {};

  bool full() const { return count == kMost; }
  void add(const Segment& segment, std::int64_t of_segment) {
    begin[count] = work;
    segments[count++] = segment;
    work += of_segment;
  }
  // The number of the segment that a piece of the work belongs to.
  __device__ int find(std::int64_t piece) const {
    int low = 0, high = count;
    while (high - low > 1) {
      const int middle = (low + high) / 2;
      (begin[middle] <= piece ? low : high) = middle;
    }
    return low;
  }
};
// Arguments of more than 4096 bytes need a new driver. The others of a kernel take the rest.
template <class Table>
inline constexpr bool kFitsInArguments = sizeof(Table) <= 4000;

}  // namespace trireme::ops::gpu
