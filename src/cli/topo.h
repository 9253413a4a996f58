// The actions of `trireme topo`, each in a file of its own.
#pragma once

#include <string>

#include "trireme/base/exit_status.h"
#include "trireme/comm/process_grid.h"
#include "trireme/comm/runtime.h"
#include "trireme/topology/cluster_fabric.h"

namespace trireme::cli {

// The flags of all actions.
struct TopoArguments {
  // Files and folders; empty: none.
  std::string dump, slurm, topology, sysfs, host, hwloc, network, json, svg;
  int ranks_per_node = 1;
  std::string grid;
  // order
  std::string nodes, config, output;
};

// The sources that the flags name; empty if they name none.
FabricSources sources_of(const TopoArguments& given);
// Reads "2x1x2": data, pipeline, tensor. Throws ConfigError.
GridShape grid_of(const std::string& text);

// Prints the fabric that the sources describe.
ExitStatus topo_show(const TopoArguments& given);
// Collective over the world. Measures latencies and rates by distance, prints and stores them.
ExitStatus topo_probe(Runtime& runtime, const TopoArguments& given);

// Prints which rank should take which place of a grid, and what that is worth.
ExitStatus topo_order(const TopoArguments& given);

}  // namespace trireme::cli
