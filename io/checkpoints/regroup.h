// Exchanges the elements of a tensor so that each owner holds one contiguous range of it.
#pragma once

#include <span>
#include <vector>

#include "io/checkpoints/checkpoint_plan.h"

namespace trireme {

// Collective over the ranks of comm that own a part of the tensor. `mine` are this rank's parts,
// with memory. Returns this rank's range: the owners get equal shares in rank order, except that
// shares begin at multiples of 1,024 elements. The result uses `memory`.
TensorSlice regroup(Communicator& comm, const ScatteredTensor& scattered,
                    std::span<const TensorSlice> mine, std::vector<char>& memory);

}  // namespace trireme
