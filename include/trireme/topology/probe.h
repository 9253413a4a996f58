// Measures how fast messages are between the ranks of a job, by distance, and finds hosts and
// uplinks that are slower than others like them.
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/communicator.h"
#include "trireme/comm/rank_blocks.h"
#include "trireme/topology/network_rates.h"

namespace trireme {

// ---- Which ranks send to which -----------------------------------------------------------------

// Ranks that send at the same time, as one stream of bytes: out of a node, or out of a block.
struct ProbeStream {
  int from, to;                            // blocks of the tier below the distance
  std::vector<std::pair<int, int>> ranks;  // who sends to whom
};
using ProbeRound = std::vector<ProbeStream>;  // these flow at the same time and share no link

// The rounds for one distance. There are at most 18 of them, however many nodes there are, and
// in each every block is in one stream only.
struct ProbeRounds {
  std::vector<ProbeRound> flow;   // streams of one message
  std::vector<ProbeRound> host;   // all ranks of a node; empty where nodes have one rank
  std::vector<ProbeRound> block;  // all ranks of a block; empty where blocks are nodes
};
// Returns no rounds if no two ranks are that far from each other. At distance 0 the ranks of a node
// send to each other; the rank of a node that has no other sends to itself.
ProbeRounds probe_rounds(const RankBlocks& blocks, int distance);

// ---- What is made of the times -----------------------------------------------------------------

// When a rank had received each of a series of equal steps.
struct ArrivalTimes {
  double bytes = 0.0;           // of a step
  std::vector<double> seconds;  // when each step had arrived, in rising order
};
// Returns the bytes per second that all receivers together got while all of them were receiving.
// The first step does not count: a network lets the beginning of a stream pass faster.
double stream_rate(const std::vector<ArrivalTimes>& receivers);

// A measured stream between two hosts or two blocks.
struct MeasuredStream {
  int distance;
  int from, to;  // hosts, or blocks
  double rate;   // bytes per second
};
struct SlowLink {
  int from, to;         // hosts or blocks; -1: any
  std::string where;    // for people: "n3 sends", "n3 receives" or "n1 to n2"
  double rate, usual;   // bytes per second
  bool is_host = true;  // else `from` and `to` are blocks
  bool operator==(const SlowLink&) const = default;
};
// Compares each stream with the usual rate at its distance. A host is slow if even its fastest
// stream in a direction is: a slow partner is not its fault. If a stream is slow and neither end
// can be told to be at fault, both are named. `names` are those of the hosts or blocks.
std::vector<SlowLink> find_slow(const std::vector<MeasuredStream>& streams,
                                const std::vector<std::string>& names);

// ---- Measuring ---------------------------------------------------------------------------------

struct Probe {
  NetworkRates rates;
  std::vector<MeasuredStream> streams;  // of one message each, between nodes
  std::vector<SlowLink> slow;           // hosts, then blocks
};
// Collective over comm, whose ranks `blocks` describes; `hosts` names the host of each rank. Takes
// some seconds. Nothing else may use the network meanwhile. All ranks return the same.
Probe probe_network(Communicator& comm, const RankBlocks& blocks,
                    const std::vector<std::string>& hosts);

}  // namespace trireme
