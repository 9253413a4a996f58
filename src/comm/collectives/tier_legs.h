// Which parts travel between which ranks in a collective along the tiers of the network
// (tier_plan.h).
#pragma once

#include <vector>

#include "comm/collectives/tier_plan.h"

namespace trireme {

// The parts that travel between this rank and another one.
struct Leg {
  int peer = 0;
  std::vector<int> parts;  // in rising order
  int block = 0;           // of the lower tier, whose contribution goes up
};

// What a rank does in a hop on the way up. On the way down the same legs are used the other way
// round.
struct Hop {
  std::vector<Leg> above;  // to the ranks that represent parts in the tier above
  std::vector<Leg> below;  // from the ranks that represent parts in the other blocks below
  // The parts that this rank represents in the tier above, and so in its own block below.
  std::vector<int> kept;
  // The leg above, by part that this rank represents below; -1 if the part is kept.
  std::vector<int> leg_above;
  // The leg that a contribution comes from, by kept part and block below; -1 for this rank's own
  // block.
  std::vector<int> leg_below;
};

// Returns what a rank does in each hop.
std::vector<Hop> find_legs(const TierPlan& tiers, const std::vector<TierPart>& parts, int rank);

}  // namespace trireme
