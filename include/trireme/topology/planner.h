// Chooses the algorithm of each collective for the communicators of a run.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/communicator_plan.h"
#include "trireme/topology/fabric.h"
#include "trireme/topology/measured_errors.h"
#include "trireme/topology/network.h"
#include "trireme/topology/network_rates.h"
#include "trireme/topology/prediction.h"
#include "trireme/topology/stored_rates.h"

namespace trireme {

// The ranks of a job in its network.
struct JobNetwork {
  RankBlocks blocks = RankBlocks(0, {});  // of all ranks of the world; tier 0: nodes
  NetworkRates rates;
  std::string source;  // of the rates, for people: "rates.json of 2026-01-31", "assumed rates"
  std::vector<MeasuredError> errors = {};  // of the probe that has measured the rates
};

// The blocks of ranks on these hosts, `hosts[rank]`. All must be among those of the file.
RankBlocks blocks_of_ranks(const StoredRates& stored, const std::vector<std::string>& hosts);

// Places a job's ranks by the file of rates. `hosts[rank]` names the node of each rank; all must be
// among the file's (why_stale).
JobNetwork job_network(const StoredRates& stored, const std::string& origin,
                       const std::vector<std::string>& hosts);
// Places them in a fabric; assumes what it does not tell. Nodes that it lacks are beyond all
// others, which `remark` says in one line.
JobNetwork job_network(Fabric fabric, const std::string& origin,
                       const std::vector<std::string>& hosts, std::string& remark);

// Gives ranks that are placed in a fabric the measured rates of a file in place of assumed ones.
// Returns why they do not suit (why_other_tiers), and changes nothing then; else nothing.
std::string take_rates(JobNetwork& network, const StoredRates& stored);

// The hosts of a fabric, below one switch after another.
std::vector<std::string> hosts_of(const Fabric& fabric);

// Which ranks share nodes, leaf switches and so on in a fabric; nodes alone if it lacks some of the
// hosts, which `missing` then names.
RankBlocks blocks_in(Fabric fabric, const std::vector<std::string>& hosts,
                     std::vector<std::string>& missing);

// One line for each part of it, to be sent to other ranks, and back.
std::string job_network_to_text(const JobNetwork& network);
JobNetwork job_network_from_text(const std::string& text);

// CommunicatorPlan::worthwhile_bytes of ranks in these blocks, at these rates: a power of two from
// 4 KiB to 1 MiB. It travels for about twice as long as a message takes to start, at the distance
// where that makes most bytes.
std::size_t worthwhile_bytes(const RankBlocks& blocks, const NetworkRates& rates);

// The predictor of ranks in these blocks, at these rates, and the network that it looks at.
struct PredictedNetwork {
  PredictedNetwork(const RankBlocks& blocks, const NetworkRates& rates);
  // The same for a communicator whose plan has these worthwhile bytes.
  PredictedNetwork(const RankBlocks& blocks, const NetworkRates& rates,
                   std::size_t worthwhile_bytes);
  PredictedNetwork(const PredictedNetwork&) = delete;
  PredictedNetwork& operator=(const PredictedNetwork&) = delete;

  TreeNetwork tree;
  Predictor predictor;
};

// Predicts by the closed form, or simulates among up to 32 ranks if the form is coarse. Returns
// nothing for MPI's own algorithms, which have no form.
std::optional<Prediction> predict(Predictor& predictor, Collective collective, Algorithm algorithm,
                                  std::size_t bytes);

// A candidate for a collective at a size.
struct Candidate {
  Algorithm algorithm;
  Prediction prediction;
};

// Returns the algorithms that may be chosen for a collective, the default first: those of ours, and
// with `any_order` false only those that keep the bits of sums (keeps_order).
std::vector<Algorithm> choosable(Collective collective, bool any_order);

// Predicts all that may be chosen, the fastest first, and leaves out what predict() cannot tell.
std::vector<Candidate> candidates(Predictor& predictor, Collective collective, std::size_t bytes,
                                  bool any_order);

// Tables have an algorithm that does not work in segments only for calls for which it needs no more
// memory than this, in bytes (whole_workspace). Those in segments add up one while the next one
// travels, which no closed form counts.
inline constexpr double kMostPlannedWorkspace = 1 << 20;

// Returns a table of the fastest algorithms: from 1 KiB to 256 MiB, in steps of the square root of
// two. The bound between two sizes with different algorithms is where their interpolated times
// meet. An algorithm stays while it is within 1.5 % of the fastest; of several that are, the one
// with the fewest turns is chosen. Predictions are corrected by what was measured; of those that
// are within 8 % then, up to 32 KiB, the one with the fewest messages is chosen.
AlgorithmTable make_table(Predictor& predictor, bool any_order,
                          const std::vector<MeasuredError>& errors = {});

// Rates of a network of which nobody has told any but perhaps that of a node's adapter, `node`: by
// default 100 Gbit/s; 2 us and 1 us more for each tier of switches, uplinks that are tapered 2:1.
// `blocks` says how large the blocks are.
NetworkRates assumed_rates(const RankBlocks& blocks, double node = 12.5e9);

// Makes the planner of a job; see Runtime::use_planner. It remembers what it has planned. The plan
// of a communicator has the blocks that its ranks are in.
CommunicatorPlanner make_planner(JobNetwork network, bool any_order);

// The blocks of some ranks of the world, in their order. Tiers that hold them all in one block are
// left out, but for the nodes.
RankBlocks blocks_among(const RankBlocks& world, const std::vector<int>& ranks);

// A table's rules in short: "all_reduce doubling to 256 KiB, halving; all_gather bruck".
std::string table_text(const AlgorithmTable& table, int ranks);

}  // namespace trireme
