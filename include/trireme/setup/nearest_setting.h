// What to change in a configuration whose ranks do not fit into their memory.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/config/config.h"
#include "trireme/models/family.h"
#include "trireme/setup/memory_check.h"

namespace trireme {

// A run that does not fit.
struct RunOfRanks {
  const Config& config;
  const models::Model& model;
  GridShape grid;
  int ranks_of_node = 1;
  plan::DryDevice device{};
};

// Returns the nearest setting of which a dry run fits, as flags with the reason: "--batch.micro 2,
// which fits". The nearest one is searched for in this order, and each change keeps those before it
// as they are or, where that does not fit, takes them further: recompute.mode, then all blocks
// where recompute.blocks is given, then batch.micro (the largest divisor of batch.global that
// fits), then a larger shard.group, if one is given, then shard.stage, then the grid: the fewest
// ranks for a model, and of equal numbers more tensor ranks, which share a node. The number of
// ranks stays. Where nothing fits, it says so. A search of more than 128 dry runs ends with what
// usually helps.
std::string nearest_setting(const RunOfRanks& run, const FitsMemory& fits);

}  // namespace trireme
