#include "trireme/setup/step_traffic.h"

#include <algorithm>
#include <map>
#include <string_view>
#include <utility>

namespace trireme {
namespace {

class Sums {
 public:
  // Adds bytes. `peer` counts for nothing where they go to no single one.
  void add(const Span& span, std::string_view operation, int peer, double bytes) {
    if (operation == "receive") return;
    // A sum is a reduce_scatter and an all_gather.
    const bool is_half =
        operation == "reduce_scatter" || operation == "all_gather" || operation == "all_to_all";
    if (is_half) bytes /= 2;
    if (span.axes == Axes()) return;
    // With other axes besides those of the data, the ranks lie as far apart as along these.
    if (span.axes.without(kDataAxes) != span.axes) sums_.data += bytes;
    if (span.axes == Axis::kTensor) sums_.tensor += bytes;
    if (span.axes == Axis::kPipeline && !span.only.empty()) sums_.ends += bytes;
    if (span.axes == Axis::kPipeline && operation == "send") {
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
    sums.add(one.group.span, one.operation, one.ranks.front(), static_cast<double>(one.bytes));
  }
  return sums.sums();
}

GridTraffic traffic_of(const Trace& trace) {
  Sums sums;
  for (const Operation& operation : trace.operations) {
    const auto lane = trace.lanes.find(operation.lane);
    if (lane == trace.lanes.end()) continue;
    sums.add(lane->second.span, operation.name, operation.peer,
             static_cast<double>(operation.bytes));
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
