// A part of a named tensor in the memory of this process. Checkpoints are written from slices and
// read into slices.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/box.h"
#include "trireme/tensor/tensor.h"

namespace trireme {

// The elements of the box [start, start + extent) of a tensor of shape `global`. If `range` is
// given, only elements [range.begin, range.end) of the box, in its own row-major order.
struct TensorSlice {
  std::string name;  // "parameters/blocks.0.norm.weight", "optimizer/NAME/exp_avg", "state/NAME"
  Shape global;
  std::vector<std::int64_t> start;  // one per dimension
  Shape extent;
  std::optional<FlatRange> range;

  // Memory of 4- or 8-byte elements, or of bf16 or fp16, which files hold in fp32: what is read is
  // rounded then. The slice keeps the memory alive. With a range, it holds the
  // range's elements contiguously, from its first element on. Without one, it is a tensor with as
  // many dimensions as the extent, each at least as long; elements beyond the extent (padding) are
  // neither written nor read into. If the tensor is on a GPU, the host holds a copy of one slice at
  // a time, while that slice is written or read.
  Tensor local;
  Stream stream = Stream();  // the GPU's stream, in whose order `local` is read and written
  // If given, it becomes true where rounding changes a value that is read.
  bool* rounded = nullptr;
  // If defined, the values are fp32 and split (SplitFloat): `local` has their upper parts in bf16,
  // and this, of the same shape on the same device, their low 16 bits (uint16).
  Tensor low = Tensor();

  static TensorSlice whole(std::string name, Tensor tensor);

  DType dtype() const;            // in files
  std::int64_t elements() const;  // the number of elements in the slice
};

}  // namespace trireme
