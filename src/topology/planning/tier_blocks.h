// The blocks of ranks that tiered algorithms know.
#pragma once

#include <vector>

#include "trireme/comm/rank_blocks.h"

namespace trireme {

// Tier 0 is the single ranks, and the highest tier is one block of all ranks. Tiers of RankBlocks
// that divide the ranks as another tier does are left out. A hop leads from the blocks of a tier to
// those of the next one.
struct TierBlocks {
  struct Block {
    std::vector<int> ranks = {};  // in rising order
    std::vector<int> below = {};  // blocks of the tier below, by their lowest ranks
    int subtrees = 0;             // the whole subtrees of T(ranks) among its ranks
  };

  // `blocks` may be nullptr.
  TierBlocks(int ranks, const RankBlocks* blocks);

  // The lowest tier that has several blocks, of several ranks, or else the highest one.
  const std::vector<Block>& groups() const { return tiers[1]; }
  int hops() const { return static_cast<int>(tiers.size()) - 1; }

  std::vector<std::vector<Block>> tiers;
  // The blocks of each hop of the tiered algorithm in one block above it, from single ranks on;
  // empty if blocks of a tier differ, or are not of as many neighbouring ranks as a power of two.
  // With others the form of the tiered algorithm is coarser: it deals all parts evenly to the ranks
  // of a block.
  std::vector<int> sizes;
};

// Returns the tiers along which a reduction goes up (sum_blocks.h).
TierBlocks tiers_of_sums(int ranks, const RankBlocks* blocks);

}  // namespace trireme
