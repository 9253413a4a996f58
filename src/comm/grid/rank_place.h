// Where each rank runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <vector>

#include "trireme/comm/communicator.h"

#include "comm/grid/core_sharing.h"

namespace trireme {

// What every rank tells the others about itself at the start.
struct Place {
  char node[128] = {};    // the launcher's name of the node
  char host[128] = {};    // the kernel's name of it
  char machine[64] = {};  // the running kernel; several nodes of a launcher may share it
  CpuMask cpus;
  // The processors that control groups grant, from the process's own group upwards; 0: no more.
  struct Quota {
    std::uint64_t group = 0;
    double processors = 0.0;
  };
  std::array<Quota, 8> quotas = {};
};

// Returns the least part of a quota that rank `own` has among ranks of one machine; nullopt without
// any quota.
std::optional<double> quota_of(const std::vector<Place>& of_machine, std::size_t own);

// The host's memory in bytes. Pinned pages reduce it for everything that runs on the node.
std::size_t memory_of_host();

// Whether a name of a node is that of several machines. mpiexec gives the environment of the node
// where it was called to the ranks of all nodes, the name that Slurm gave to that node included.
bool names_are_shared(const std::vector<Place>& places);

// Collective. Returns the places of all ranks of the world, in their order. If names are shared,
// nodes are called by their hosts' names, by node_name() too.
std::vector<Place> gather_places(Communicator& world);

}  // namespace trireme
