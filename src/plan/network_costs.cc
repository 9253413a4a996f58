#include "trireme/plan/network_costs.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <compare>
#include <map>
#include <tuple>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

#include "plan/group_costs.h"
#include "plan/group_placement.h"

namespace trireme::plan {
namespace {

[[noreturn]] void refuse(const NetworkDescription& network, const std::string& why) {
  throw ConfigError(fmt::format("network {}: {}", shown(network.name), why));
}

bool is_positive(double value) {
  return std::isfinite(value) && value > 0.0;
}

bool is_quantity(double value) {
  return std::isfinite(value) && value >= 0.0;
}

void check_distance(const NetworkDescription& network, std::size_t distance) {
  constexpr std::array kWhere = {"within a node", "between nodes", "between leaf switches"};
  const DistanceRates& one = network.rates.distances[distance];
  const char* where = kWhere[std::min(distance, kWhere.size() - 1)];
  if (!is_positive(one.flow)) {
    refuse(network,
           fmt::format("messages {} have {} bytes/s; a rate above 0 is needed", where, one.flow));
  }
  if (!is_quantity(one.host) || !is_quantity(one.block)) {
    refuse(network, fmt::format("links {} have {} bytes/s of a node, {} of a leaf switch; a rate "
                                "above 0, or 0 for no limit, is needed",
                                where, one.host, one.block));
  }
  if (!is_quantity(one.latency)) {
    refuse(network, fmt::format("messages {} take {} s; 0 or more is needed", where, one.latency));
  }
}

bool is_message(std::string_view operation) {
  return operation == "send" || operation == "receive";
}

// What tells groups of the same ranks apart: how others like them lie.
using SpanKey = std::tuple<unsigned, int, std::vector<int>, bool>;
SpanKey key_of(const GroupLabel& label) {
  unsigned axes = 0;
  for (const Axis axis : kAxes) axes = 2 * axes + (label.span.axes.contains(axis) ? 1 : 0);
  return {axes, label.span.block, label.span.only, label.purpose == Purpose::kMeetings};
}

}  // namespace

void check_network(const NetworkDescription& network) {
  if (network.ranks_of_node < 1) {
    refuse(network, fmt::format("{} ranks on a node; at least 1 is needed", network.ranks_of_node));
  }
  if (network.nodes_of_leaf < 0) {
    refuse(network, fmt::format("{} nodes below a leaf switch; 0 (one switch) or more is needed",
                                network.nodes_of_leaf));
  }
  if (network.rates.distances.empty()) refuse(network, "it has no rates");
  for (std::size_t i = 0; i < network.rates.distances.size(); ++i) check_distance(network, i);
  const auto& [efficiency, latency, start] = network.constants;
  if (!is_positive(efficiency) || efficiency > 1.0) {
    refuse(network,
           fmt::format("an efficiency of {}; above 0 and at most 1 is needed", efficiency));
  }
  if (!is_quantity(latency) || !is_quantity(start)) {
    refuse(network, fmt::format("a latency factor of {} and a start of {} s; 0 or more is needed",
                                latency, start));
  }
  const NcclNodeLinks& links = network.node_links;
  if (network.nccl && (!is_positive(links.bytes_per_second) || !is_quantity(links.latency))) {
    refuse(network, fmt::format("links of GPUs with {} bytes/s and {} s; a rate above 0 is needed",
                                links.bytes_per_second, links.latency));
  }
}

class NetworkCosts::Impl {
 public:
  Impl(NetworkDescription network, const GridShape& grid, int islands)
      : network_(std::move(network)),
        layout_{network_.ranks_of_node, network_.nodes_of_leaf},
        links_(grid, islands, layout_) {
    check_network(network_);
    TRIREME_CHECK(islands >= 1, fmt::format("{} islands", islands));
  }

  const NetworkDescription& network() const { return network_; }

  CommunicationCost cost(std::string_view operation, const GroupLabel& label,
                         const std::vector<int>& ranks, std::size_t bytes) {
    if (ranks.size() < 2) return {};
    const bool message = is_message(operation);
    TRIREME_CHECK(!message || ranks.size() == 2,
                  fmt::format("a message between {} ranks", ranks.size()));
    GroupKey key{message, on_host(operation, label), key_of(label), ranks};
    auto known = groups_.find(key);
    if (known == groups_.end()) {
      Shape& shape = shape_of(message, std::get<1>(key), label, ranks);
      known = groups_.emplace(std::move(key), &shape).first;
    }
    return known->second->cost(operation, bytes, network_.constants.start);
  }

 private:
  // Groups that lie alike, and what they cost.
  struct Shape {
    std::unique_ptr<GroupCosts> costs;
    std::map<std::pair<std::string, std::size_t>, CommunicationCost, std::less<>> known;

    CommunicationCost cost(std::string_view operation, std::size_t bytes, double start) {
      const auto [found, added] = known.try_emplace({std::string(operation), bytes});
      if (added) {
        found->second = costs->cost(operation, bytes);
        found->second.latency += start;
      }
      return found->second;
    }
  };
  using GroupKey = std::tuple<bool, bool, SpanKey, std::vector<int>>;
  using ShapeKey = std::tuple<bool, bool, Sharing, std::vector<int>>;

  // MPI carries what hosts have to say: communicators of all ranks, and barriers.
  bool on_host(std::string_view operation, const GroupLabel& label) const {
    if (!network_.nccl || operation == "barrier") return true;
    return label.span.axes == Axes() && label.purpose != Purpose::kMeetings;
  }

  Shape& shape_of(bool message, bool on_host, const GroupLabel& label,
                  const std::vector<int>& ranks) {
    const RankBlocks blocks = blocks_of(layout_, ranks);
    const Sharing sharing = message ? links_.of_message(label, ranks.front(), ranks.back())
                                    : links_.of_group(label, ranks);
    std::vector<int> places;
    for (int tier = 0; tier < blocks.tiers(); ++tier) {
      for (int rank = 0; rank < blocks.ranks(); ++rank) places.push_back(blocks.block(tier, rank));
    }
    const auto [found, added] = shapes_.try_emplace({message, on_host, sharing, std::move(places)});
    Shape& shape = found->second;
    if (!added) return shape;
    if (message) {
      shape.costs = make_message_costs(network_, blocks, sharing, !on_host);
    } else if (on_host) {
      shape.costs = make_mpi_costs(network_, blocks, sharing);
    } else {
      shape.costs = make_nccl_costs(network_, blocks, sharing);
    }
    return shape;
  }

  NetworkDescription network_;
  NodeLayout layout_;
  SharedLinks links_;
  std::map<GroupKey, Shape*> groups_;
  std::map<ShapeKey, Shape> shapes_;
};

NetworkCosts::NetworkCosts(NetworkDescription network, const GridShape& grid, int islands)
    : impl_(std::make_unique<Impl>(std::move(network), grid, islands)) {}

NetworkCosts::~NetworkCosts() = default;

const NetworkDescription& NetworkCosts::network() const {
  return impl_->network();
}

CommunicationCost NetworkCosts::cost(std::string_view operation, const GroupLabel& label,
                                     const std::vector<int>& ranks, std::size_t bytes) {
  return impl_->cost(operation, label, ranks, bytes);
}

}  // namespace trireme::plan
