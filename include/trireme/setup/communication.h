// How the communicators of a run are planned for its network, and what is recorded of them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"
#include "trireme/parallel/stage.h"
#include "trireme/topology/planner.h"

namespace trireme {

// Collective over the world. Returns where Slurm says that each node is, as the first rank of the
// node is told: pairs of address and pattern, as fabric_of_addresses takes them.
std::vector<std::pair<std::string, std::string>> slurm_addresses(Runtime& runtime);

// Returns the fabric of such addresses. Malformed ones are not the user's doing; then nothing is
// known.
Fabric fabric_by_slurm(const std::vector<std::pair<std::string, std::string>>& addresses);

// What is known of the network of a job.
struct NetworkOfJob {
  std::optional<JobNetwork> network;  // nothing: the communicators keep the default table
  // What could not be used and why, and what was odd in the description: a line each, a few at
  // most.
  std::vector<std::string> remarks;
  // The fabric as it was read, with all of its hosts; on rank 0, where a network is known.
  std::optional<Fabric> fabric = {};
  bool rates_are_measured = false;  // on rank 0
};

// A communicator of several ranks, and the plan that it follows.
struct PlannedComm {
  Communicator* comm;
  std::string name;
  std::vector<int> ranks;  // of the world
  std::shared_ptr<CommunicatorPlan> plan;
};
// Returns those among `all` that have several ranks. The runtime must have made them.
std::vector<PlannedComm> planned_communicators(Runtime& runtime,
                                               const std::vector<Communicator*>& all);
// Returns those that this rank trains with: the world's, those of the grid, then the stage's own.
std::vector<PlannedComm> planned_communicators(Runtime& runtime, const parallel::Stage& stage);

// Returns the table of algorithms that comm.order and comm.algorithms ask for where nothing is
// known of the network.
AlgorithmTable algorithm_table(const Config::Comm& comm);

// Call it on all ranks. The communicators that are made from now on follow the configuration, and
// are planned for the network where it is known.
void plan_communicators(Runtime& runtime, const NetworkOfJob& network, const Config::Comm& comm);

// Collective over the world; the same on all ranks. `key` is the value of comm.network:
// - "none": nothing.
// - files, separated by commas: the rates in them, or else what the descriptions of the fabric say.
//   Throws ConfigError if one cannot be read or is neither. If rates are stale, or a description
//   has none of the job's nodes, a remark says so, and nothing is known if nothing else is named.
// - "auto": nothing on one node. Else the rates of usual_rates_path(), if the file is there and
//   good for these nodes, or else the places and rates that a description of the fabric gives,
//   which is looked for as trireme topo show does, and assumed rates for the rest.
NetworkOfJob read_job_network(Runtime& runtime, const std::string& key);

}  // namespace trireme
