// The actions of `trireme topo`, each in a file of its own.
#pragma once

#include <string>
#include <vector>

#include "trireme/base/exit_status.h"
#include "trireme/comm/rank_blocks.h"
#include "trireme/comm/runtime.h"

namespace trireme::cli {

// The flags of all actions.
struct TopoArguments {
  // Files and folders; empty: none.
  std::string dump, slurm, topology, sysfs, host, hwloc, network, json, svg;
  int ranks_per_node = 1;
  std::string grid;
};

// Collective over the world. Returns which ranks share nodes and leaf switches, as Slurm tells its
// tasks. A remark says what is not known.
RankBlocks blocks_by_slurm(Runtime& runtime, std::vector<std::string>& remarks);

// Prints the fabric that the sources describe.
ExitStatus topo_show(const TopoArguments& given);
// Collective over the world. Measures latencies and rates by distance, prints and stores them.
ExitStatus topo_probe(Runtime& runtime, const TopoArguments& given);

}  // namespace trireme::cli
