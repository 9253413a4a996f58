// How long NCCL's algorithms take on a fabric, and the table of choices that follows.
//
// NCCL knows the links inside of a node and the node's adapters, but nothing of switches. So these
// closed forms count what each algorithm sends out of nodes, leaf switches and so on. They leave
// out what all algorithms have in common, as the start of a kernel. Times are in seconds.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/rank_blocks.h"
#include "trireme/topology/nccl_table.h"
#include "trireme/topology/network_rates.h"
#include "trireme/topology/stored_rates.h"

namespace trireme {

// How a GPU reaches another GPU of its node. The defaults are those of a slow NVLink.
struct NcclNodeLinks {
  double latency = 1e-6;
  double bytes_per_second = 100e9;  // out of a GPU
};

// A communicator as NCCL's algorithms see it.
struct NcclGroup {
  // What an algorithm does, for each byte that it handles.
  struct Pattern {
    double latency = 0.0;           // of the network hops that wait for one another
    double hops = 0.0;              // their number
    double node_hops = 0.0;         // the number of hops in nodes that wait for one another
    double seconds_per_byte = 0.0;  // at the busiest way out of a node or block of nodes
    double node_bytes = 0.0;        // out of a GPU to others of its node
  };

  std::uint64_t ranks = 1, nodes = 1;
  NcclNodeLinks links = {};
  Pattern ring;                // once around
  Pattern tree;                // up and down; two trees with half of the bytes each
  std::optional<Pattern> pat;  // among nodes of one rank each, or NCCL does not have it
};

// Block i of tier 0 is NCCL's node i. The distances of `rates` are those of `blocks`; its first
// entry is not used, because it is about processors and not about GPUs.
NcclGroup nccl_group(const RankBlocks& blocks, const NetworkRates& rates, NcclNodeLinks links = {});

// Returns how long a collective takes. Returns nothing for a cell that NCCL does not have, and for
// algorithms whose time depends on more than links (switches that add up). Bytes are counted as in
// NcclRule.
std::optional<double> nccl_seconds(const NcclGroup& group, NcclCollective collective,
                                   const NcclCell& cell, std::uint64_t bytes);

// Makes the tables for a run's communicators, one for each size in ranks and nodes. Where several
// communicators have the same size, the slowest of them counts. Communicators inside of one node
// get no table: NCCL knows more of a node than we do.
std::vector<NcclTable> make_nccl_tables(const std::vector<NcclGroup>& groups);

// Returns the text of the table for a communicator whose ranks run on `hosts`, each of which has
// taken part in the measurement (why_stale).
std::string nccl_table_text(const StoredRates& stored, const std::vector<std::string>& hosts);
// The same for a communicator whose ranks are in these blocks, of which tier 0 are the nodes.
std::string nccl_table_text(const RankBlocks& blocks, const NetworkRates& rates);

// Returns one text for the texts of several communicators' tables, by name: a table of each size,
// and in comments which communicators have it and where another one of that size differs.
std::string join_nccl_tables(const std::map<std::string, std::string>& texts);

}  // namespace trireme
