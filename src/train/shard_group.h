// The default of shard.group.
#pragma once

#include <optional>
#include <vector>

#include "trireme/config/config.h"
#include "trireme/topology/planner.h"

namespace trireme {

// Returns the grids of which a run takes the first that fits into memory. The last one is `grid`
// itself, which follows shard.group; where that is not given, all replicas share one copy in it.
// Where ranks reach those of their own node faster than others, grids come before it in which the
// replicas of a node share a copy, those of two nodes, and so on. `on_gpus`: ranks talk over NCCL,
// whose ways inside of a node `network` does not know; they count as faster.
std::vector<GridShape> grids_of_shards(const Config& config, const GridShape& grid,
                                       const std::optional<JobNetwork>& network, bool on_gpus);

}  // namespace trireme
