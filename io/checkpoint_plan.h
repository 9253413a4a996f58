// Which tensors a checkpoint will hold and who writes which part. Rank 0, which makes the file,
// knows all of it; every other rank knows its own slices, and of a tensor whose elements are handed
// around first, the parts of those that own it. So a rank's share does not grow with the ranks.
#pragma once

#include <cstdint>
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

  std::int64_t elements() const { return shape.elements(); }
  std::int64_t bytes() const { return elements() * static_cast<std::int64_t>(size_of(dtype)); }
};

// A slice without memory and the rank that owns it.
struct OwnedPart {
  int rank = 0;
  TensorSlice slice;
};

// A tensor of which some rank's part lies in the file in short runs, and which is not small: its
// owners hand the elements around first, and each writes one long run.
struct ScatteredTensor {
  PlannedTensor tensor;
  std::vector<OwnedPart> parts;  // of all owners, in rank order
};

struct CheckpointPlan {
  std::vector<ScatteredTensor> scattered;  // by name: those of which this rank owns a part
  // On rank 0 alone:
  std::vector<PlannedTensor> tensors;             // by name
  std::vector<std::vector<std::int32_t>> slices;  // of each rank's slices, their place in tensors

  const ScatteredTensor* find_scattered(const std::string& name) const;  // nullptr: it is not
};

// Collective over comm. Throws, on all ranks, InternalError where the ranks contradict each other
// or the slices do not cover each tensor exactly once.
CheckpointPlan agree_on_plan(Communicator& comm, std::span<const TensorSlice> owned);

// The parts of agree_on_plan that need no other rank. Where the slices of a rank lie, in few bytes:
std::string describe_slices(std::span<const TensorSlice> owned);
// From the descriptions of all ranks, in rank order: the plan of rank 0, but for `scattered`, and
// what each rank needs to know of scattered tensors. Throws as agree_on_plan.
struct DrawnPlan {
  CheckpointPlan plan;
  std::vector<std::string> answers;  // to each rank
};
DrawnPlan draw_plan(std::span<const std::string> descriptions);
std::vector<ScatteredTensor> read_answer(const std::string& answer);

// The writes of one slice: boxes of at most 64 MiB, in coordinates of the slice.
std::vector<hdf5::Box> writes_of(const TensorSlice& slice);

}  // namespace trireme
