// How the gradients of a group are divided among the replicas that add them up in few bits.
#pragma once

#include <vector>

#include "trireme/nn/flat_group.h"
#include "trireme/parallel/compressed_sum.h"

namespace trireme::parallel {

// A block has elements of one parameter in one unit of the group's memory (nn::Sharding::kUnit). So
// it has the same scale on all ranks that hold a copy of the parameter, whatever else each of them
// holds, and whatever shards there are. The owner of a block is one of the `copies` ranks of the
// data dimension that have its shard, or of all where memory is not divided. They own about equally
// many.
std::vector<CompressedSum::Piece> gradient_pieces(const nn::FlatGroup& group, int copies);

}  // namespace trireme::parallel
