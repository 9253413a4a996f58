#include "trireme/comm/rank_blocks.h"

#include <algorithm>
#include <cstddef>
#include <map>
#include <numeric>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {

RankBlocks::RankBlocks(int ranks, std::vector<std::vector<int>> tiers)
    : ranks_(ranks), tiers_(std::move(tiers)) {
  for (std::size_t tier = 0; tier < tiers_.size(); ++tier) {
    std::vector<int>& blocks = tiers_[tier];
    TRIREME_CHECK(blocks.size() == static_cast<std::size_t>(ranks),
                  fmt::format("tier {} lists {} of {} ranks", tier, blocks.size(), ranks));
    std::map<int, int> numbers;
    for (int& block : blocks) {
      block = numbers.emplace(block, static_cast<int>(numbers.size())).first->second;
    }
    counts_.push_back(static_cast<int>(numbers.size()));
    if (tier == 0) continue;
    std::vector<int> above(static_cast<std::size_t>(counts_[tier - 1]), -1);
    for (std::size_t rank = 0; rank < blocks.size(); ++rank) {
      const int below = tiers_[tier - 1][rank];
      int& block = above[static_cast<std::size_t>(below)];
      TRIREME_CHECK(
          block < 0 || block == blocks[rank],
          fmt::format("block {} of tier {} is divided in tier {}", below, tier - 1, tier));
      block = blocks[rank];
    }
  }
}

int RankBlocks::distance(int a, int b) const {
  int tier = 0;
  while (tier < tiers() && block(tier, a) != block(tier, b)) ++tier;
  return tier;
}

std::vector<int> RankBlocks::in_order() const {
  std::vector<int> order(static_cast<std::size_t>(ranks_));
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, [&](int a, int b) {
    for (int tier = tiers() - 1; tier >= 0; --tier) {
      if (block(tier, a) != block(tier, b)) return block(tier, a) < block(tier, b);
    }
    return false;
  });
  return order;
}

}  // namespace trireme
