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

struct PlannedTensor {
  std::string name;
  Shape shape;
  DType dtype = DType::kF32;
  // Some rank's part is made of short runs of the file, and the tensor is large: then all ranks
  // write at once, so that MPI-IO can put their parts together.
  bool collective = false;
  std::size_t rounds = 0;  // most writes that one rank has

  std::int64_t elements() const { return shape.elements(); }
};

using CheckpointPlan = std::vector<PlannedTensor>;  // by name; the same on all ranks

// Collective over comm. Throws, on all ranks, InternalError where the ranks contradict each other
// or the slices do not cover each tensor exactly once.
CheckpointPlan agree_on_plan(Communicator& comm, std::span<const TensorSlice> owned);

// The writes of one slice: boxes of at most 64 MiB, in coordinates of the slice.
std::vector<hdf5::Box> writes_of(const TensorSlice& slice);

}  // namespace trireme
