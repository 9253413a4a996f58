// Which ranks of a communicator are near each other: those of a node, of a leaf switch, and so on.
#pragma once

#include <vector>

namespace trireme {

// Tier 0 divides the ranks into nodes, tier 1 into groups of nodes below one leaf switch, and so
// on. A block of a tier consists of whole blocks of the tier below. All ranks together are above
// the last tier.
class RankBlocks {
 public:
  // `tiers[t][rank]` is the number of the rank's block in tier t. Throws InternalError if a tier
  // does not list all ranks, or a block is divided between two blocks of the tier above it.
  RankBlocks(int ranks, std::vector<std::vector<int>> tiers);

  int ranks() const { return ranks_; }
  int tiers() const { return static_cast<int>(tiers_.size()); }
  // Blocks of a tier are numbered from 0 in the order of their lowest ranks.
  int block(int tier, int rank) const {
    return tiers_[static_cast<std::size_t>(tier)][static_cast<std::size_t>(rank)];
  }
  int blocks(int tier) const { return counts_[static_cast<std::size_t>(tier)]; }
  // The number of tiers whose blocks do not hold both ranks: 0 within a node, tiers() between
  // blocks of the last tier.
  int distance(int a, int b) const;
  // All ranks, block after block in every tier, and in rising order within a node: a ring in this
  // order enters and leaves each block once.
  std::vector<int> in_order() const;

  bool operator==(const RankBlocks&) const = default;

 private:
  int ranks_;
  std::vector<std::vector<int>> tiers_;
  std::vector<int> counts_;  // of blocks, by tier
};

}  // namespace trireme
