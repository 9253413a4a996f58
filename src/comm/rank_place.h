// Where each rank runs.
#pragma once

#include <cstddef>
#include <vector>

#include "trireme/comm/communicator.h"

#include "core_sharing.h"

namespace trireme {

// What every rank tells the others about itself at the start.
struct Place {
  char node[128] = {};    // the launcher's name of the node
  char machine[64] = {};  // the running kernel; several nodes of a launcher may share it
  CpuMask cpus;
};

// The host's memory in bytes. Pinned pages reduce it for everything that runs on the node.
std::size_t memory_of_host();

// Collective. Returns the places of all ranks of the world, in their order.
std::vector<Place> gather_places(Communicator& world);

}  // namespace trireme
