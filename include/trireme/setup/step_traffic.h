// How much a training step sends along each dimension of the grid.
#pragma once

#include <vector>

#include "trireme/comm/flight_recorder.h"
#include "trireme/plan/dry_run.h"
#include "trireme/topology/rank_order.h"

namespace trireme {

// Returns what a rank sends in one step: the sums of each dimension's communicator, and what was
// sent to the one neighbouring stage that got most. A gather or scatter counts as half a sum. With
// hybrid sharding, sums of the data dimension are those within groups and among them.
// Dimensions of size 1 have no traffic.
GridTraffic traffic_of(const std::vector<DryTraffic>& recorded);
// The same of what this rank's flight recorder counted.
GridTraffic traffic_of(const Trace& trace);

// Returns for each dimension the traffic of the rank that sends most.
GridTraffic traffic_of(const std::vector<plan::DryRunResult>& results);

}  // namespace trireme
