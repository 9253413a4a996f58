// Hands the elements of a tensor around so that each rank holds one contiguous range of it.
#pragma once

#include <span>
#include <vector>

#include "checkpoint_plan.h"

namespace trireme {

// Collective over comm, whose ranks own `parts`; `mine` are this rank's, with memory. Returns the
// range of this rank: equal shares in rank order. Its memory is `memory`.
TensorSlice regroup(Communicator& comm, const PlannedTensor& tensor,
                    std::span<const TensorSlice> mine, std::vector<char>& memory);

}  // namespace trireme
