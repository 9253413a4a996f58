// Brings the tensors of a checkpoint to all ranks that want them, according to a ReadPlan.
#pragma once

#include <span>

#include "trireme/io/checkpoint.h"

#include "io/checkpoints/read_plan.h"
#include "io/files/posix_file.h"

namespace trireme {

// Collective over groups.world. The slices must be of the file's tensors, which Checkpoint::check
// ensures. Throws on all ranks: RunFolderError if the file cannot be read, InternalError if the
// ranks of groups.copies want different slices.
void read_shared(const ReadGroups& groups, const PosixFile& file,
                 const CheckpointContents& contents, std::span<const TensorSlice> wanted,
                 const ReadLimits& limits = {});

// The slices that one rank wants. Ranks send them to each other.
struct WantedSlices {
  std::vector<TensorSlice> slices;
  std::vector<std::vector<std::size_t>> of_tensor;  // by tensor of the plan: indices of its slices
  std::vector<std::size_t> tensor_of;               // by slice: index of its tensor in the plan

  // How many bytes of a run these slices want.
  std::int64_t bytes_of(const ReadPlan& plan, const ReadPlan::Run& run) const;
};
// Returns `slices`, assigned to the tensors of the plan.
WantedSlices wanted_of(const ReadPlan& plan, std::vector<TensorSlice> slices);

// The cost of reading for a whole world, as far as one rank can compute it without the others.
struct ReadCost {
  std::int64_t reads = 0;       // of the whole world
  std::int64_t bytes_read = 0;  // of the whole world
  std::int64_t longest_read = 0, median_read = 0;
  std::int64_t most_sent = 0;  // bytes that the busiest rank sends
  std::int64_t most_held = 0;  // bytes of the file that a rank holds at one time
};
// `wanted` are the slices of one replica's ranks, by rank.
ReadCost cost_of(const ReadPlan& plan, const ReadWorld& world,
                 const std::vector<WantedSlices>& wanted);

}  // namespace trireme
