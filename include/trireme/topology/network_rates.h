// How fast messages are on a cluster's network, by distance.
#pragma once

#include <string>
#include <vector>

#include "trireme/topology/simulated_world.h"

namespace trireme {

// Rates between two ranks at one distance: RankBlocks::distance, 0 within a node.
struct DistanceRates {
  double latency = 0.0;  // seconds of a small message, one way
  double flow = 0.0;     // bytes per second of one message that has the links to itself
  double host = 0.0;     // bytes per second out of a node while all its ranks send that far
  double block = 0.0;    // bytes per second out of a whole block of the tier below while all
                         // of its ranks send that far; its uplinks limit them
  bool operator==(const DistanceRates&) const = default;
};

struct NetworkRates {
  std::vector<DistanceRates> distances;  // from the nearest on; never empty
  SimulatedCosts costs = {};  // of a rank; its latency is unused, distances have their own
};

}  // namespace trireme
