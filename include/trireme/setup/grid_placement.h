// Which rank takes which place of the grid, by grid.order.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/grid_shape.h"
#include "trireme/comm/runtime.h"
#include "trireme/topology/planner.h"
#include "trireme/topology/rank_order.h"

namespace trireme {

struct Placement {
  std::vector<int> order;  // the rank at each place
  std::string places;      // "n1: 0-3, n2: 4-7"; as describe_places writes it
  std::string why;         // a line for the user; empty where places follow the launcher's order
};

// Collective over the world. Returns the same order on every rank; rank 0 knows why. `order` is
// grid.order: auto goes by what a step sends, which rank 0 knows, and by `network`, or, where that
// is not known, by what Slurm tells its tasks. Throws ConfigError if it names a file that cannot be
// read or does not list each rank, or each node, once.
Placement place_grid(Runtime& runtime, const std::string& order, const GridShape& shape,
                     const GridTraffic& traffic, const std::optional<JobNetwork>& network);

}  // namespace trireme
