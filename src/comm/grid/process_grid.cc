#include "trireme/comm/process_grid.h"

#include <algorithm>
#include <numeric>
#include <string>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

// The groups that get a communicator, in the order in which they are made. A set comes behind those
// that contain it if it may share theirs.
struct NamedGroup {
  const char* name;
  Axes axes;
  Purpose purpose;
};
constexpr NamedGroup kGroups[] = {{"data", kDataAxes, Purpose::kGradients},
                                  {"pipeline", Axis::kPipeline, Purpose::kActivations},
                                  {"tensor", Axis::kTensor, Purpose::kActivations},
                                  {"model", kModelAxes, Purpose::kState},
                                  {"replicate", Axis::kReplicate, Purpose::kGradients},
                                  {"shard", Axis::kShard, Purpose::kWeights}};

}  // namespace

ProcessGrid::ProcessGrid(RankRuntime& runtime, const GridShape& shape, std::vector<int> order)
    : runtime_(runtime), shape_(shape), order_(std::move(order)) {
  if (order_.empty()) {
    order_.resize(static_cast<std::size_t>(runtime.size()));
    std::iota(order_.begin(), order_.end(), 0);
  }
  TRIREME_CHECK(shape.ranks() == static_cast<int>(order_.size()),
                fmt::format("a grid of {} ranks over {}", shape.ranks(), order_.size()));
  const auto here = std::find(order_.begin(), order_.end(), runtime.rank());
  TRIREME_CHECK(here != order_.end(), fmt::format("rank {} is not in the grid", runtime.rank()));
  place_ = static_cast<int>(here - order_.begin());
  world_ = runtime.host_group("grid", order_);
  for (const auto& [name, axes, purpose] : kGroups) {
    const auto same = std::ranges::find_if(groups_, [&, wanted = axes](const Group& made) {
      return made.axes.contains(wanted) && shape.extent(made.axes) == shape.extent(wanted);
    });
    groups_.push_back({axes, same != groups_.end() ? same->comm : make({name, axes, purpose})});
  }
}

std::vector<int> ProcessGrid::ranks(const Span& span) const {
  std::vector<int> ranks = shape_.group(place_, span);
  for (int& rank : ranks) rank = order_[static_cast<std::size_t>(rank)];
  return ranks;
}

Communicator& ProcessGrid::comm(Axes axes) const {
  const auto made = std::ranges::find(groups_, axes, &Group::axes);
  if (made == groups_.end()) {
    throw InternalError("the grid has no communicator of the axes " + axes.to_string());
  }
  return *made->comm;
}

std::shared_ptr<Communicator> ProcessGrid::make(const GroupLabel& label) const {
  return runtime_.group(label, ranks(label.span));
}

std::vector<Communicator*> ProcessGrid::communicators() const {
  std::vector<Communicator*> all = {world_.get()};
  for (const Group& group : groups_) {
    if (std::ranges::find(all, group.comm.get()) == all.end()) all.push_back(group.comm.get());
  }
  return all;
}

}  // namespace trireme
