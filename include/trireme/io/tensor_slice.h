// A part of a named tensor that lies in this process: what checkpoints are written from and read
// into.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/tensor/tensor.h"

namespace trireme {

// A range of elements [begin, end).
struct FlatRange {
  std::int64_t begin = 0;
  std::int64_t end = 0;
};

// The elements of the box [start, start + extent) of a tensor of shape `global`, and of these,
// where `range` is given, the ones at [range.begin, range.end) in the box's own row-major order.
struct TensorSlice {
  std::string name;  // "parameters/blocks.0.norm.weight", "optimizer/NAME/exp_avg", "state/NAME"
  Shape global;
  std::vector<std::int64_t> start;  // one per dimension
  Shape extent;
  std::optional<FlatRange> range;

  // Memory of 4- or 8-byte elements, kept alive by the slice. With a range: its elements, one after
  // the other, from the first on. Without: a tensor of as many dimensions as the extent, none
  // shorter; what is beyond the extent (padding) is neither written nor read into. Of a tensor on a
  // GPU the host holds a copy while the slice is written or read, of one slice at a time.
  Tensor local;
  Stream stream = Stream();  // of the GPU, in whose order `local` is read and written

  static TensorSlice whole(std::string name, Tensor tensor);

  std::int64_t elements() const;  // of the slice
};

}  // namespace trireme
