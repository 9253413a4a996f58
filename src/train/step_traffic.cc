#include "trireme/train/step_traffic.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace trireme {
namespace {

// All replicas, or with hybrid sharding those of a group, and those that hold the same shard.
bool is_of_replicas(std::string_view name) {
  return name.starts_with("data") || name.starts_with("shard") || name.starts_with("replicate");
}

class Sums {
 public:
  // `name` of the communicator; of what goes to no single peer, `peer` counts for nothing.
  void add(std::string_view name, std::string_view operation, int peer, double bytes) {
    if (operation == "receive") return;
    if (operation == "reduce_scatter" || operation == "all_gather") bytes /= 2;
    if (is_of_replicas(name)) sums_.data += bytes;
    if (name.starts_with("tensor")) sums_.tensor += bytes;
    if (name.starts_with("tied")) sums_.ends += bytes;
    if (name.starts_with("pipeline") && operation == "send") {
      double& to_peer = sent_[peer] += bytes;
      sums_.pipeline = std::max(sums_.pipeline, to_peer);
    }
  }
  const GridTraffic& sums() const { return sums_; }

 private:
  GridTraffic sums_;
  std::map<int, double> sent_;  // by peer
};

}  // namespace

GridTraffic traffic_of(const std::vector<DryTraffic>& recorded) {
  Sums sums;
  for (const DryTraffic& one : recorded) {
    sums.add(one.communicator, one.operation, one.ranks.front(), static_cast<double>(one.bytes));
  }
  return sums.sums();
}

GridTraffic traffic_of(const Trace& trace) {
  Sums sums;
  for (const Operation& operation : trace.operations) {
    const auto lane = trace.lanes.find(operation.lane);
    if (lane == trace.lanes.end()) continue;
    // With NCCL " on GPUs" follows the communicator's name.
    sums.add(lane->second, operation.name, operation.peer, static_cast<double>(operation.bytes));
  }
  return sums.sums();
}

GridTraffic traffic_of(const std::vector<plan::DryRunResult>& results) {
  GridTraffic most;
  for (const plan::DryRunResult& result : results) {
    const GridTraffic one = traffic_of(result.traffic);
    most = {.data = std::max(most.data, one.data),
            .pipeline = std::max(most.pipeline, one.pipeline),
            .tensor = std::max(most.tensor, one.tensor),
            .ends = std::max(most.ends, one.ends)};
  }
  return most;
}

}  // namespace trireme
