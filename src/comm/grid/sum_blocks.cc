#include "trireme/comm/sum_blocks.h"

#include <cstddef>
#include <utility>

#include "trireme/comm/sum_tree.h"

namespace trireme {
namespace {

constexpr int kMostPieces = 8;  // of a block that is taken apart

}  // namespace

std::vector<int> count_subtrees(const std::vector<int>& block_of, int blocks) {
  constexpr int kSeveral = -1;
  std::vector<int> counts(static_cast<std::size_t>(blocks));
  const auto joined = [&](int left, int right) {
    if (left == right) return left;
    for (const int block : {left, right}) {
      if (block != kSeveral) ++counts[static_cast<std::size_t>(block)];
    }
    return kSeveral;
  };
  const SumTree tree(static_cast<int>(block_of.size()));
  std::vector<int> level;  // the block of each subtree
  for (int term = 0; term < tree.terms(); ++term) {
    const auto first = static_cast<std::size_t>(tree.first_rank_of(term));
    level.push_back(term < tree.pairs() ? joined(block_of[first], block_of[first + 1])
                                        : block_of[first]);
  }
  while (level.size() > 1) {
    for (std::size_t i = 0; i < level.size() / 2; ++i) {
      level[i] = joined(level[2 * i], level[2 * i + 1]);
    }
    level.resize(level.size() / 2);
  }
  if (level.front() != kSeveral) ++counts[static_cast<std::size_t>(level.front())];
  return counts;
}

RankBlocks blocks_of_sums(const RankBlocks& blocks) {
  const auto ranks = static_cast<std::size_t>(blocks.ranks());
  std::vector<std::vector<int>> tiers;
  std::vector<int> pieces(ranks);  // by rank: the lowest rank of its piece of the tier below
  for (int tier = 0; tier < blocks.tiers(); ++tier) {
    const auto count = static_cast<std::size_t>(blocks.blocks(tier));
    std::vector<int> block_of(ranks), lowest(count, -1), below(count), number(count);
    const std::vector<int> of_pieces = count_subtrees(pieces, blocks.ranks());
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      block_of[rank] = blocks.block(tier, static_cast<int>(rank));
      const auto block = static_cast<std::size_t>(block_of[rank]);
      if (lowest[block] < 0) lowest[block] = static_cast<int>(rank);
      if (pieces[rank] != static_cast<int>(rank)) continue;
      below[block] += of_pieces[rank];
      ++number[block];
    }
    const std::vector<int> own = count_subtrees(block_of, blocks.blocks(tier));
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto block = static_cast<std::size_t>(block_of[rank]);
      const bool adds_nothing = own[block] == below[block] && number[block] <= kMostPieces;
      if (tier == 0 || !adds_nothing) pieces[rank] = lowest[block];  // there is no tier below nodes
    }
    tiers.push_back(pieces);
  }
  return {blocks.ranks(), std::move(tiers)};
}

}  // namespace trireme
