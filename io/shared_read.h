// Brings the tensors of a checkpoint to all ranks that want them, as a ReadPlan says.
#pragma once

#include <span>

#include "trireme/io/checkpoint.h"

#include "posix_file.h"
#include "read_plan.h"

namespace trireme {

// Collective over groups.world. The slices are of the file's tensors, as Checkpoint::check sees to.
// Throws, on all ranks, RunFolderError where the file cannot be read and InternalError where the
// ranks of groups.copies want different slices.
void read_shared(const ReadGroups& groups, const PosixFile& file,
                 const CheckpointContents& contents, std::span<const TensorSlice> wanted,
                 const ReadLimits& limits = {});

// What one rank wants, as it is sent to others and told by them.
struct WantedSlices {
  std::vector<TensorSlice> slices;
  std::vector<std::vector<std::size_t>> of_tensor;  // numbers of slices, by number of the tensor
  std::vector<std::size_t> tensor_of;               // number of the tensor, by number of the slice

  // How many bytes of a run these slices want.
  std::int64_t bytes_of(const ReadPlan& plan, const ReadPlan::Run& run) const;
};
// `slices` with the tensors of the plan that they belong to.
WantedSlices wanted_of(const ReadPlan& plan, std::vector<TensorSlice> slices);

// What reading costs a world: what a rank can foretell of it without the others.
struct ReadCost {
  std::int64_t reads = 0;       // of the whole world
  std::int64_t bytes_read = 0;  // of the whole world
  std::int64_t longest_read = 0, median_read = 0;
  std::int64_t most_sent = 0;  // bytes that the busiest rank sends
  std::int64_t most_held = 0;  // bytes of the file that a rank holds at one time
};
// `wanted`: of the ranks of one replica.
ReadCost cost_of(const ReadPlan& plan, const ReadWorld& world,
                 const std::vector<WantedSlices>& wanted);

}  // namespace trireme
