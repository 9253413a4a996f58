#include "comm/collectives/tier_legs.h"

#include <cstddef>
#include <map>
#include <numeric>
#include <utility>

namespace trireme {
namespace {

// Legs of a hop in the order in which their peers turn up. A peer is in one block.
class LegList {
 public:
  explicit LegList(std::vector<Leg>& legs) : legs_(legs) {}

  // Adds a part to the leg to a peer; returns the leg's number.
  int add(int part, int peer, int block) {
    const auto [entry, is_new] = known_.emplace(peer, static_cast<int>(legs_.size()));
    if (is_new) legs_.push_back({peer, {}, block});
    legs_[static_cast<std::size_t>(entry->second)].parts.push_back(part);
    return entry->second;
  }

 private:
  std::vector<Leg>& legs_;
  std::map<int, int> known_;  // by peer
};

// `held`: the parts that the rank represents in its block below the hop.
Hop find_hop(const TierPlan& tiers, const std::vector<TierPart>& parts, int rank, int hop,
             const std::vector<int>& held) {
  Hop result;
  LegList above(result.above), below(result.below);
  const int own = tiers.block(hop, rank), parent = tiers.block(hop + 1, rank);
  for (const int part : held) {
    const TierPart& one = parts[static_cast<std::size_t>(part)];
    const int peer = tiers.representative(hop + 1, parent, one);
    if (peer != rank) {
      result.leg_above.push_back(above.add(part, peer, own));
      continue;
    }
    result.leg_above.push_back(-1);
    result.kept.push_back(part);
    for (const int block : tiers.children(hop + 1, parent)) {
      result.leg_below.push_back(
          block == own ? -1 : below.add(part, tiers.representative(hop, block, one), block));
    }
  }
  return result;
}

}  // namespace

std::vector<Hop> find_legs(const TierPlan& tiers, const std::vector<TierPart>& parts, int rank) {
  std::vector<Hop> result;
  std::vector<int> held(parts.size());
  std::iota(held.begin(), held.end(), 0);
  for (int hop = 0; hop < tiers.hops(); ++hop) {
    result.push_back(find_hop(tiers, parts, rank, hop, held));
    held = result.back().kept;
  }
  return result;
}

}  // namespace trireme
