// The actions of `trireme topo`, each in a file of its own.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "trireme/base/exit_status.h"
#include "trireme/comm/grid_shape.h"
#include "trireme/comm/rank_blocks.h"
#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/rank_order.h"
#include "trireme/topology/stored_rates.h"

namespace trireme::cli {

// The flags of all actions.
struct TopoArguments {
  // Files and folders; empty: none.
  std::string dump, slurm, topology, sysfs, host, hwloc, network, json, svg;
  int ranks_per_node = 1;
  std::string grid;
  std::string nodes;           // a list as Slurm writes it; empty: all
  std::string config, output;  // order
  // choose, explain
  int ranks = 0;  // 0: as many as the nodes hold
  bool any_order = false;
  bool collectives = true;         // probe
  std::vector<std::string> words;  // after the action's name
};

// The sources that the flags name; empty if they name none.
FabricSources sources_of(const TopoArguments& given);
// Reads "2x1x2": data, pipeline, tensor. Throws ConfigError.
GridShape grid_of(const std::string& text);
// Where the ranks of a job are in the network.
struct PlacesOfRanks {
  RankBlocks blocks;                 // which ranks share nodes and leaf switches
  std::vector<std::string> remarks;  // what is odd in the description, or not known
  std::optional<Fabric> fabric;      // on rank 0; without vertices if nothing is known
};
// Collective over the world. Rank 0 reads the sources; `strict` as read_cluster takes it.
PlacesOfRanks places_of_ranks(Runtime& runtime, const FabricSources& sources, bool strict);

// Returns the job's nodes in the order in which the launcher numbers their ranks: --nodes, or else
// all hosts of the fabric by name. Throws ConfigError if a node is not in the fabric.
std::vector<std::string> nodes_in_order(const TopoArguments& given, const Fabric& fabric);
// Returns the node of each rank as the launcher numbers them: nodes_in_order, --ranks-per-node
// each. Throws ConfigError if they are too few.
std::vector<std::string> launcher_hosts(const TopoArguments& given, const Fabric& fabric,
                                        int ranks);
// The hosts of these nodes, vertices of the fabric.
std::vector<int> vertices_of(const Fabric& fabric, const std::vector<std::string>& hosts);
// Reads --config; the default configuration if there is none.
Config config_of(const TopoArguments& given);
// Returns what a step sends, by a dry run; of at least one micro-batch for each replica. Throws
// ConfigError where the model does not fit the grid.
GridTraffic traffic_of_step(const Config& config, const GridShape& shape);

// Prints the fabric that the sources describe.
ExitStatus topo_show(const TopoArguments& given);
// Collective over the world. Measures latencies and rates by distance, prints and stores them.
ExitStatus topo_probe(Runtime& runtime, const TopoArguments& given);

// Collective over the world. Times collectives among all ranks, each by the algorithms that may be
// worth choosing at these rates: some seconds, on slow links up to a minute or so. Prints them next
// to what was predicted.
std::vector<MeasuredCollective> time_collectives(Runtime& runtime, const StoredRates& stored);

// Prints which rank should take which place of a grid, and what that is worth.
ExitStatus topo_order(const TopoArguments& given);
// Prints which algorithm would carry each collective at each size among the ranks of a job.
ExitStatus topo_choose(const TopoArguments& given);
// The same for the collective and the size that `words` hold, with all candidates.
ExitStatus topo_explain(const TopoArguments& given);

}  // namespace trireme::cli
