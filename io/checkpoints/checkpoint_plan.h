// Which tensors a checkpoint will hold, and which rank writes which part. Rank 0, which makes the
// file, knows everything. Every other rank knows only its own slices and, for each of its tensors
// that is regrouped before it is written, the parts of all its owners. So what a rank must know
// does not grow with the number of ranks.
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

// A slice without memory, and the rank that owns it.
struct OwnedPart {
  int rank = 0;
  TensorSlice slice;
};

// A tensor that is not small, and in which some rank's part consists of short runs in the file. Its
// owners first exchange elements, so that each writes one long run.
struct ScatteredTensor {
  PlannedTensor tensor;
  std::vector<OwnedPart> parts;  // of all owners, in rank order
};

struct CheckpointPlan {
  std::vector<ScatteredTensor> scattered;  // those that this rank owns a part of, sorted by name
  // Only on rank 0:
  std::vector<PlannedTensor> tensors;             // sorted by name
  std::vector<std::vector<std::int32_t>> slices;  // by rank: for each slice its index in tensors

  const ScatteredTensor* find_scattered(const std::string& name) const;  // nullptr: not scattered
};

// Collective over comm. Throws InternalError on all ranks if the ranks contradict each other, or if
// the slices do not cover each tensor exactly once.
CheckpointPlan agree_on_plan(Communicator& comm, std::span<const TensorSlice> owned);

// The steps of agree_on_plan that need no other rank. describe_slices returns the positions of a
// rank's slices in few bytes.
std::string describe_slices(std::span<const TensorSlice> owned);
// Makes the plan of rank 0, without `scattered`, and what each rank needs to know about scattered
// tensors. `descriptions` are those of all ranks, in rank order. Throws like agree_on_plan.
struct DrawnPlan {
  CheckpointPlan plan;
  std::vector<std::string> answers;  // by rank, for read_answer
};
DrawnPlan draw_plan(std::span<const std::string> descriptions);
std::vector<ScatteredTensor> read_answer(const std::string& answer);

// Splits one slice into writes: boxes of at most 64 MiB, in coordinates of the slice.
std::vector<hdf5::Box> writes_of(const TensorSlice& slice);

}  // namespace trireme
