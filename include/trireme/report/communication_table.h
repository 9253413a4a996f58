// What carries the collectives of a run: communication.json in the run folder (io/RUN_FOLDER.md).
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace trireme {

// A communicator of rank 0.
struct CommunicatorRecord {
  std::string name = {};
  int ranks = 0, nodes = 0;
  std::string table = {};  // the algorithm of each collective by size, in short
};

// What rank 0 did with one of them lately.
struct CollectiveRecord {
  std::string communicator = {}, collective = {}, algorithm = {};
  std::uint64_t bytes = 0;  // of the whole buffer
  int count = 0;
  double measured_seconds = 0.0;   // median
  double predicted_seconds = 0.0;  // 0: not known
  std::string link = {};           // the busiest, by the prediction
  double link_seconds = 0.0;       // for which it carries messages; 0: not known
  double bus_bandwidth = 0.0;  // bytes/s that each rank must send at least, as NCCL's tests count

  double time() const { return count * measured_seconds; }
  // The share of the measured time for which the busiest link carries messages.
  double link_share() const {
    return measured_seconds > 0.0 ? link_seconds / measured_seconds : 0.0;
  }
};

// What comm.tune has found for a collective of one size.
struct TunedCollective {
  std::string communicator = {}, collective = {};
  std::uint64_t bytes = 0;                                 // of the whole buffer
  std::string algorithm = {};                              // which it takes now
  std::string planned = {};                                // which it took before
  std::vector<std::pair<std::string, double>> tried = {};  // algorithms and their seconds
};

struct CommunicationTable {
  std::string source;  // of the network's rates; empty: the tables are the default
  std::string order;   // of sums: "tree" or "any"
  std::vector<CommunicatorRecord> communicators;
  std::vector<CollectiveRecord> collectives;  // by communicator; the most time first
  int left_out = 0;                           // rows that took less time than these
  std::vector<TunedCollective> tuned = {};
};

// Keeps the `most` rows that took the most time, in their order, and counts the others.
void keep_longest(CommunicationTable& table, std::size_t most);

std::string to_json(const CommunicationTable& table);
// Returns nothing if there is no such file, or if it is not a valid table.
std::optional<CommunicationTable> read_communication_table(const std::string& path);

}  // namespace trireme
