// Which blocks of ranks (rank_blocks.h) can add something up: those that hold several parts of one
// subtree of T(p) (sum_tree.h).
#pragma once

#include <vector>

#include "trireme/comm/rank_blocks.h"

namespace trireme {

// Returns how many whole subtrees of T(p) each block holds: those whose ranks are all in the block,
// but not all ranks of the subtree that they are a half of. `block_of` maps each of p ranks to its
// block, a number below `blocks`.
std::vector<int> count_subtrees(const std::vector<int>& block_of, int blocks);

// Returns the blocks along which a reduction goes up. A block above the nodes in which nothing can
// be added up, such as the ranks 0 and 2 of four, is taken apart: whatever it has goes to the tier
// above from where it is. By way of one of its ranks it would only load that rank's links twice.
// Blocks of many nodes or smaller blocks stay whole, so that the messages above them stay few.
RankBlocks blocks_of_sums(const RankBlocks& blocks);

}  // namespace trireme
