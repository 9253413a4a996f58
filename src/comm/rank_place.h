// Where each rank runs.
#pragma once

#include <cstddef>
#include <vector>

#include "trireme/comm/communicator.h"

#include "core_sharing.h"

namespace trireme {

// What every rank tells the others of itself at the start.
struct Place {
  char node[128] = {};    // what the launcher calls the node
  char machine[64] = {};  // the running kernel: several nodes of a launcher may share one
  CpuMask cpus;
};

// Bytes; pages that are pinned are taken from all that runs on the node.
std::size_t memory_of_host();

// Of all ranks of the world, in their order. Collective.
std::vector<Place> gather_places(Communicator& world);

}  // namespace trireme
