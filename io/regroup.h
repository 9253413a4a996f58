// Hands the elements of a tensor around so that each owner holds one contiguous range of it.
#pragma once

#include <span>
#include <vector>

#include "checkpoint_plan.h"

namespace trireme {

// Collective over the owners of a part, which are ranks of comm; `mine` are this rank's, with
// memory. Returns the range of this rank: equal shares in the order of the owners' ranks. Its
// memory is `memory`.
TensorSlice regroup(Communicator& comm, const ScatteredTensor& scattered,
                    std::span<const TensorSlice> mine, std::vector<char>& memory);

}  // namespace trireme
