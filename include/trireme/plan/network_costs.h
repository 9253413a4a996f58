// How long communication takes between the ranks of a grid, by closed forms.
#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/grid_shape.h"
#include "trireme/comm/group_label.h"
#include "trireme/topology/measured_errors.h"
#include "trireme/topology/nccl_costs.h"
#include "trireme/topology/planner.h"

namespace trireme::plan {

// A network that a planner is told of. Distances are as in NetworkRates: within a node, within a
// leaf switch, and beyond. src/plan/README.md lists the names and their figures.
struct NetworkDescription {
  std::string name;    // "ndr400-fat-tree"
  std::string title;   // "InfiniBand NDR, 400 Gbit/s, full fat tree"
  std::string source;  // where the figures are from
  int ranks_of_node = 1;
  int nodes_of_leaf = 0;     // 0: all nodes are below one switch
  NetworkRates rates;        // `flow` of one adapter, `host` of all adapters of a node
  bool nccl = false;         // who carries tensors: NCCL, or MPI with our algorithms
  bool any_order = false;    // comm.order: whether our algorithms may add in another order
  NcclNodeLinks node_links;  // of GPUs, as NCCL's rings reach them
  std::vector<MeasuredError> errors = {};  // of the probe that has measured the rates
  // Fitted, at most three for each network.
  struct Constants {
    double efficiency = 0.9;  // the share of a network's rates that long messages reach
    double latency = 1.0;     // times that of the rates
    double start = 10e-6;     // seconds of starting a collective or message
  } constants;
  double interval = 0.3;  // as in DeviceDescription
};

// Throws ConfigError, in one line, for a network without rates, or whose figures make no sense.
void check_network(const NetworkDescription& network);

// A communication of one rank, as a step program has it.
struct CommunicationCost {
  double latency = 0.0;      // seconds in which no link is busy
  double flow = 0.0;         // seconds for which the busiest link is, if it has nothing else to do
  bool leaves_node = false;  // that link is the node's, or else one within it
};

// Costs the communication of a grid's ranks, placed on nodes in their order: rank r is on node
// r / ranks_of_node.
class NetworkCosts {
 public:
  // Throws as check_network does.
  NetworkCosts(NetworkDescription network, const GridShape& grid, int islands = 1);
  ~NetworkCosts();

  const NetworkDescription& network() const;
  // `operation` is that of a ProgramCommunication, `bytes` too: what the flight recorder counts.
  // Of a message, `ranks` are its two ends, or else the members of the communicator, in their order
  // there. All groups that are like this one (of the same span, elsewhere in the grid) are taken to
  // do the same at the same time, so they share the links of nodes. It remembers what it has
  // computed, so threads must not share one.
  CommunicationCost cost(std::string_view operation, const GroupLabel& label,
                         const std::vector<int>& ranks, std::size_t bytes);

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

// The networks that the program knows by name, in the order of their names, each with the kind of
// node that is usual in it.
const std::vector<NetworkDescription>& known_networks();
// The kinds of nodes that it knows: "dgx-h100".
const std::vector<std::string>& known_nodes();
// The kind of node that a device (DeviceDescription::name) usually is in: "dgx-a100" for
// "a100-80". Empty where none is known.
std::string usual_node(std::string_view device);
// Returns one by its name, for nodes of so many ranks, of GPUs or of processors that share one
// adapter. A name is that of a network, of a kind of node in its usual network, or both:
// "hdr200-fat-tree+pcie-4". Throws ConfigError that names the nearest.
NetworkDescription known_network(std::string_view name, int ranks_of_node, bool on_gpus);
// What the key comm.network describes: a file of rates, which are `measured`, or a fabric, whose
// cables have the rates of their makers. Throws as check_network does.
NetworkDescription described_network(const JobNetwork& network, int ranks_of_node, bool on_gpus,
                                     bool measured);

}  // namespace trireme::plan
