// Who does what in a collective that follows the tiers of the network: within nodes first, then
// between the nodes of a leaf switch, then between leaf switches.
//
// Here tier 0 is the single ranks, and the highest tier is one block of all ranks. Tiers of
// RankBlocks that divide the ranks as another tier does are left out. A hop d leads from the blocks
// of tier d to those of tier d + 1.
//
// A reduction goes up along a plan of its own, `sums()`, without the blocks in which nothing can be
// added up (sum_blocks.h). Parts and who represents them are the same in both.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <utility>
#include <vector>

#include "trireme/comm/rank_blocks.h"
#include "trireme/comm/sum_tree.h"

namespace trireme {

// A whole subtree of T(p): all terms from index * 2^level to (index + 1) * 2^level - 1. Level -1:
// one rank of a pair, with the number `index`.
struct Subtree {
  int level, index;

  bool operator==(const Subtree&) const = default;
  // Whether it is the contribution of one rank.
  bool is_single(const SumTree& tree) const {
    return level < 0 || (level == 0 && index >= tree.pairs());
  }
  // A number that rises in the order of ranks; those of subtrees that do not overlap differ.
  long order() const { return level < 0 ? index : 2L * (long{index} << level); }
  Subtree left(const SumTree&) const {
    return level == 0 ? Subtree{-1, 2 * index} : Subtree{level - 1, 2 * index};
  }
  Subtree right(const SumTree&) const {
    return level == 0 ? Subtree{-1, 2 * index + 1} : Subtree{level - 1, 2 * index + 1};
  }
};

// A part of a buffer. Its owner has the result of a reduction, or what is to be gathered. In each
// block of each tier one rank represents the part: the owner, if it is in the block, or else a rank
// that also represents the part in a block of the tier below. So the parts are divided evenly among
// the ranks of a block, and among the blocks in a block of the tier above.
struct TierPart {
  struct Digit {
    int number, count;  // number < count
  };
  std::vector<Digit> digits;  // by hop: which of the blocks of tier d in one of tier d + 1
  int owner = -1;             // -1: what the digits say
};

using TierParts = std::shared_ptr<const std::vector<TierPart>>;

// Thread-safe.
class TierPlan {
 public:
  // `blocks` may be nullptr.
  TierPlan(const RankBlocks* blocks, int ranks);

  // The plan for the way up of a reduction; that itself knows no other.
  const TierPlan& sums() const { return sums_ ? *sums_ : *this; }

  int hops() const { return static_cast<int>(children_.size()); }
  const SumTree& tree() const { return tree_; }
  int block(int tier, int rank) const;
  // The blocks of tier - 1 in a block of tier 1 to hops().
  const std::vector<int>& children(int tier, int block) const {
    return children_[static_cast<std::size_t>(tier - 1)][static_cast<std::size_t>(block)];
  }
  // The largest whole subtrees of T(p) among the ranks of a block, in order.
  const std::vector<Subtree>& subtrees(int tier, int block) const {
    return subtrees_[static_cast<std::size_t>(tier)][static_cast<std::size_t>(block)];
  }

  int representative(int tier, int block, const TierPart& part) const;

  // A part for each rank, which owns it.
  TierParts part_per_rank() const;
  TierPart part_of_owner(int owner) const;
  // Parts of a buffer in the order in which they lie in it. The parts that a rank represents within
  // a block of the lowest tier are neighbours. They are dealt evenly to the ranks, but to those of
  // some blocks of the second highest tier alone if that loads the links above these less: where
  // ranks are placed so that some blocks hold more subtrees than others. A partial result is
  // `partial` bytes wide, and a contribution or result `element`.
  TierParts parts_in_order(std::size_t partial, std::size_t element) const;

 private:
  TierPlan(const RankBlocks* blocks, int ranks, const TierPlan* whole);
  void add_tiers(const RankBlocks* blocks);
  void add_tier(std::vector<int> of_rank, int count);
  void find_subtrees();
  void count_ranks();
  int size(int tier, int block) const {
    return sizes_[static_cast<std::size_t>(tier)][static_cast<std::size_t>(block)];
  }

  std::pair<int, int> same_block_of_whole(int tier, int block) const;
  std::vector<TierPart> make_parts_in_order(std::size_t partial, std::size_t element) const;
  std::vector<std::size_t> numbers_of_hops(std::size_t owning) const;
  std::vector<int> owning_blocks(std::size_t partial, std::size_t element) const;
  bool holds(int tier, int block, int rank) const { return this->block(tier, rank) == block; }

  int ranks_;
  SumTree tree_;
  std::vector<std::vector<int>> block_of_;               // by tier 1 to hops(), by rank
  std::vector<std::vector<std::vector<int>>> children_;  // by hop, by block of the tier above it
  std::vector<std::vector<std::vector<Subtree>>> subtrees_;  // by tier, by block
  std::vector<std::vector<int>> sizes_;                      // ranks, by tier, by block
  std::unique_ptr<const TierPlan> sums_;                     // nullptr: the same as this one
  const TierPlan* whole_ = nullptr;  // of a plan for sums: the plan that it is of

  mutable std::mutex mutex_;
  mutable TierParts per_rank_;
  mutable std::map<std::pair<std::size_t, std::size_t>, TierParts> in_order_;
};

// Returns the plan for these blocks, which is made once as long as they live.
std::shared_ptr<const TierPlan> tier_plan_of(const std::shared_ptr<const RankBlocks>& blocks,
                                             int ranks);

}  // namespace trireme
