// How each rank spent its time lately: ranks.json in the run folder (io/RUN_FOLDER.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/axes.h"

namespace trireme {

struct RankTimes {
  int node = 0;                  // index into RankTable::nodes
  DimensionNumbers place = {};   // in the grid, by kGridDimensions
  int micro_batches = 0;         // per step
  double compute_seconds = 0.0;  // this and the next two: average per step
  double wait_data_seconds = 0.0;
  double comm_seconds = 0.0;  // exposed
  double memory_bytes = 0.0;  // peak resident
  double times_peers = 0.0;   // own_seconds / its peers' median; 0: it has no peers

  // The time that other ranks wait for.
  double own_seconds() const { return compute_seconds + wait_data_seconds; }
  double step_seconds() const { return own_seconds() + comm_seconds; }
};

struct NodeLink {
  std::string host;
  double bytes_per_second = 0.0;  // to a neighbour, each way; 0: not measured
};

// One window of steps.
struct RankTable {
  std::int64_t first_step = 0, last_step = 0;
  double gather_seconds = 0.0;          // the time that it took to gather all this
  std::vector<std::string> stragglers;  // who is slow now, in the words of the log
  std::vector<NodeLink> nodes;
  std::vector<RankTimes> ranks;  // by rank
};

std::string to_json(const RankTable& table);
// Returns nothing if there is no such file, or if it is not a valid table.
std::optional<RankTable> read_rank_table(const std::string& path);

// Returns the rank with the largest times_peers, or, if no rank has peers, the one with the longest
// own_seconds. The table must have at least one rank.
std::size_t slowest_rank(const RankTable& table);

}  // namespace trireme
