// What NCCL's collectives and messages cost.
#include <algorithm>
#include <array>
#include <limits>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "trireme/topology/nccl_costs.h"

#include "plan/group_costs.h"

namespace trireme::plan {
namespace {

// Seconds of a message beside the latency of its link, in the simple protocol (nccl_costs.cc).
constexpr double kMessageHop = 6e-6;
constexpr std::array kAlgorithms = {NcclAlgorithm::kTree, NcclAlgorithm::kRing,
                                    NcclAlgorithm::kPat};

std::optional<NcclCollective> nccl_collective(std::string_view operation) {
  for (int number = 0; number < kNcclCollectives; ++number) {
    const auto collective = static_cast<NcclCollective>(number);
    if (name_of(collective) == operation) return collective;
  }
  return {};
}

std::vector<int> counts_of(const RankBlocks& blocks, int tier) {
  std::vector<int> counts(static_cast<std::size_t>(blocks.blocks(tier)));
  for (int rank = 0; rank < blocks.ranks(); ++rank) {
    ++counts[static_cast<std::size_t>(blocks.block(tier, rank))];
  }
  return counts;
}

// The rates of a group: GPUs use the adapters near them, each that of one message.
NetworkRates adapter_rates(const NetworkDescription& network, const RankBlocks& blocks,
                           const Sharing& sharing) {
  NetworkRates rates = shared_rates(network, sharing);
  const std::vector<int> counts = counts_of(blocks, 0);
  const double most = std::ranges::max(counts);
  for (std::size_t distance = 1; distance < rates.distances.size(); ++distance) {
    DistanceRates& one = rates.distances[distance];
    one.host = std::min(one.host, most * one.flow);
  }
  return rates;
}

class NcclCosts final : public GroupCosts {
 public:
  NcclCosts(const NetworkDescription& network, const RankBlocks& blocks, const Sharing& sharing)
      : blocks_(blocks),
        rates_(adapter_rates(network, blocks, sharing)),
        group_(nccl_group(blocks, rates_, network.node_links)) {
    if (group_.nodes > 1) return;
    // Its tables are not about groups within a node. A tree is a chain there.
    group_.ring = {.node_hops = static_cast<double>(group_.ranks), .node_bytes = 1.0};
    group_.tree = {.node_hops = 2.0 * static_cast<double>(group_.ranks - 1), .node_bytes = 2.0};
  }

  CommunicationCost cost(std::string_view operation, std::size_t bytes) override {
    if (operation == "all_to_all") return all_to_all(bytes);
    // A message is a broadcast among two.
    const bool message = operation == "send" || operation == "receive";
    const auto collective = message ? NcclCollective::kBroadcast : nccl_collective(operation);
    CommunicationCost best = fastest(collective.value_or(NcclCollective::kBroadcast), bytes);
    best.leaves_node = group_.nodes > 1;
    return best;
  }

 private:
  CommunicationCost fastest(NcclCollective collective, std::size_t bytes) const {
    CommunicationCost best;
    double least = std::numeric_limits<double>::infinity();
    for (const NcclAlgorithm algorithm : kAlgorithms) {
      for (int protocol = 0; protocol < kNcclProtocols; ++protocol) {
        const NcclCell cell{algorithm, static_cast<NcclProtocol>(protocol)};
        const auto seconds = nccl_seconds(group_, collective, cell, bytes);
        if (!seconds || *seconds >= least) continue;
        least = *seconds;
        best.latency = nccl_seconds(group_, collective, cell, 0).value_or(0.0);
        best.flow = *seconds - best.latency;
      }
    }
    return best;
  }

  // Every rank sends to every other at once.
  CommunicationCost all_to_all(std::size_t bytes) const {
    const double ranks = static_cast<double>(group_.ranks);
    const double part = static_cast<double>(bytes) / ranks;
    const double in_node = std::ranges::max(counts_of(blocks_, 0));
    const bool leaves_node = group_.nodes > 1;
    CommunicationCost cost{.latency = group_.links.latency, .leaves_node = leaves_node};
    cost.flow = part * (in_node - 1.0) / group_.links.bytes_per_second;
    for (int tier = 0; leaves_node && tier < blocks_.tiers(); ++tier) {
      const double inside = std::ranges::max(counts_of(blocks_, tier));
      const DistanceRates& far =
          rates_
              .distances[std::min(static_cast<std::size_t>(tier) + 1, rates_.distances.size() - 1)];
      const double rate = tier == 0 ? far.host : far.block;
      if (rate > 0.0) cost.flow = std::max(cost.flow, part * inside * (ranks - inside) / rate);
      cost.latency = std::max(cost.latency, far.latency);
    }
    cost.latency += kMessageHop + (ranks - 1.0) * rates_.costs.message;  // each has to be posted
    return cost;
  }

  RankBlocks blocks_;
  NetworkRates rates_;
  NcclGroup group_;
};

}  // namespace

std::unique_ptr<GroupCosts> make_nccl_costs(const NetworkDescription& network,
                                            const RankBlocks& blocks, const Sharing& sharing) {
  return std::make_unique<NcclCosts>(network, blocks, sharing);
}

}  // namespace trireme::plan
