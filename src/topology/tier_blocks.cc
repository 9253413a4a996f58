#include "tier_blocks.h"

#include <bit>
#include <cstddef>
#include <utility>

namespace trireme {
namespace {

// Counts the whole subtrees of T(ranks) in each block: those whose ranks are all in the block, but
// not all ranks of the subtree that they are a half of. `block_of` maps ranks to blocks.
void count_subtrees(const std::vector<int>& block_of, std::vector<TierBlocks::Block>& blocks) {
  constexpr int kSeveral = -1;
  const auto count = [&](int block) {
    if (block != kSeveral) ++blocks[static_cast<std::size_t>(block)].subtrees;
  };
  const auto joined = [&](int left, int right) {
    if (left == right) return left;
    count(left), count(right);
    return kSeveral;
  };
  const std::size_t ranks = block_of.size(), terms = std::bit_floor(ranks), pairs = ranks - terms;
  std::vector<int> level;
  for (std::size_t term = 0; term < terms; ++term) {
    level.push_back(term < pairs ? joined(block_of[2 * term], block_of[2 * term + 1])
                                 : block_of[term + pairs]);
  }
  while (level.size() > 1) {
    for (std::size_t i = 0; i < level.size() / 2; ++i) {
      level[i] = joined(level[2 * i], level[2 * i + 1]);
    }
    level.resize(level.size() / 2);
  }
  count(level.front());
}

}  // namespace

TierBlocks::TierBlocks(int ranks, const RankBlocks* blocks) {
  std::vector<int> below(static_cast<std::size_t>(ranks));  // block of each rank, a tier below
  tiers.emplace_back(static_cast<std::size_t>(ranks));
  for (int rank = 0; rank < ranks; ++rank) {
    below[static_cast<std::size_t>(rank)] = rank;
    tiers.back()[static_cast<std::size_t>(rank)] = {.ranks = {rank}, .subtrees = 1};
  }
  const auto add = [&](int count, const auto& block_of) {
    std::vector<Block> tier(static_cast<std::size_t>(count));
    for (int rank = 0; rank < ranks; ++rank) {
      Block& own = tier[static_cast<std::size_t>(block_of(rank))];
      own.ranks.push_back(rank);
      const int child = below[static_cast<std::size_t>(rank)];
      if (tiers.back()[static_cast<std::size_t>(child)].ranks.front() == rank) {
        own.below.push_back(child);
      }
    }
    for (int rank = 0; rank < ranks; ++rank) {
      below[static_cast<std::size_t>(rank)] = block_of(rank);
    }
    count_subtrees(below, tier);
    tiers.push_back(std::move(tier));
  };
  for (int tier = 0; blocks != nullptr && tier < blocks->tiers(); ++tier) {
    const int count = blocks->blocks(tier);
    if (count == 1 || count == static_cast<int>(tiers.back().size())) continue;
    add(count, [&](int rank) { return blocks->block(tier, rank); });
  }
  add(1, [](int) { return 0; });
}

}  // namespace trireme
