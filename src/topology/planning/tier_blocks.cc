#include "topology/planning/tier_blocks.h"

#include <bit>
#include <cstddef>
#include <utility>

#include "trireme/comm/sum_blocks.h"

namespace trireme {
namespace {

// What TierBlocks::sizes says.
std::vector<int> tier_sizes(int ranks, const RankBlocks* blocks) {
  std::vector<int> sizes;
  int inside = 1;  // ranks of a block
  for (int tier = 0; blocks != nullptr && tier < blocks->tiers(); ++tier) {
    const int count = blocks->blocks(tier);
    if (count == 1 || count * inside == ranks) continue;
    const int size = ranks / count;
    const bool is_power = std::has_single_bit(static_cast<unsigned>(size));
    if (count * size != ranks || !is_power) return {};
    for (int rank = 0; rank < ranks; ++rank) {
      if (blocks->block(tier, rank) != rank / size) return {};
    }
    sizes.push_back(size / inside);
    inside = size;
  }
  sizes.push_back(ranks / inside);
  return sizes;
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
    const std::vector<int> subtrees = count_subtrees(below, count);
    for (std::size_t block = 0; block < tier.size(); ++block) {
      tier[block].subtrees = subtrees[block];
    }
    tiers.push_back(std::move(tier));
  };
  for (int tier = 0; blocks != nullptr && tier < blocks->tiers(); ++tier) {
    const int count = blocks->blocks(tier);
    if (count == 1 || count == static_cast<int>(tiers.back().size())) continue;
    add(count, [&](int rank) { return blocks->block(tier, rank); });
  }
  add(1, [](int) { return 0; });
  sizes = tier_sizes(ranks, blocks);
}

TierBlocks tiers_of_sums(int ranks, const RankBlocks* blocks) {
  if (blocks == nullptr) return {ranks, nullptr};
  const RankBlocks of_sums = blocks_of_sums(*blocks);
  return {ranks, &of_sums};
}

}  // namespace trireme
