// Which tensors a checkpoint will hold and who writes which part: agreed by all ranks before the
// file is made.
#pragma once

#include <span>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/io/hdf5.h"
#include "trireme/io/tensor_slice.h"

namespace trireme {

// A slice without memory and the rank that owns it.
struct OwnedPart {
  int rank = 0;
  TensorSlice slice;
};

struct PlannedTensor {
  std::string name;
  Shape shape;
  DType dtype = DType::kF32;
  // Some rank's part lies in the file in short runs, and the tensor is not small: then the ranks
  // hand the elements around first, and each writes one long run.
  bool scattered = false;
  std::vector<OwnedPart> parts;  // of all ranks, in rank order

  std::int64_t elements() const { return shape.elements(); }
};

using CheckpointPlan = std::vector<PlannedTensor>;  // by name; the same on all ranks

// Collective over comm. Throws, on all ranks, InternalError where the ranks contradict each other
// or the slices do not cover each tensor exactly once.
CheckpointPlan agree_on_plan(Communicator& comm, std::span<const TensorSlice> owned);

// The writes of one slice: boxes of at most 64 MiB, in coordinates of the slice.
std::vector<hdf5::Box> writes_of(const TensorSlice& slice);

}  // namespace trireme
