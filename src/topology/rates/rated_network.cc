// Networks of which is known which ranks are near each other, and how fast messages are by
// distance.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "trireme/topology/network.h"
#include "trireme/topology/network_rates.h"

#include "topology/fabric/link_names.h"
#include "topology/no_limit.h"

namespace trireme {

TreeNetwork::TreeNetwork(const RankBlocks& blocks, const NetworkRates& rates) {
  const int tiers = blocks.tiers();
  const auto known = static_cast<int>(rates.distances.size());
  const auto at = [&](int distance) -> const DistanceRates& {
    return rates.distances[static_cast<std::size_t>(std::min(distance, known - 1))];
  };
  for (int distance = 0; distance <= tiers; ++distance) {
    distances_.push_back({at(distance).latency, at(distance).flow});
  }
  double up = 0.0;  // out of a host, over all distances
  for (int distance = 1; distance <= std::max(tiers, 1); ++distance) {
    up = std::max({up, at(distance).host, at(distance).flow});
  }
  const std::vector<int> hosts = place_on_hosts(blocks);
  for (const int rank : hosts) {
    const std::string name = fmt::format("the node of rank {}", rank);
    for (const LinkWay way : {LinkWay::kOut, LinkWay::kInto}) {
      links_.push_back({link_of_host(name, way), up});
    }
    links_.push_back({"memory of " + name, std::max(at(0).host, at(0).flow)});
  }
  // The rates of larger blocks are of their own ways up.
  for (int tier = 1; tier < tiers; ++tier) add_rated_tier(blocks, tier, hosts, at(tier + 1).block);
}

// Returns the first rank of each host. Ranks of which nothing is known are hosts of their own.
std::vector<int> TreeNetwork::place_on_hosts(const RankBlocks& blocks) {
  const bool known = blocks.tiers() > 0;
  std::vector<int> first_ranks(static_cast<std::size_t>(known ? blocks.blocks(0) : blocks.ranks()),
                               -1);
  for (int rank = 0; rank < blocks.ranks(); ++rank) {
    place_of_.push_back(known ? blocks.block(0, rank) : rank);
    int& first = first_ranks[static_cast<std::size_t>(place_of_.back())];
    if (first < 0) first = rank;
  }
  return first_ranks;
}

// Adds the links above the blocks of a tier, given the first rank of each host and the rate of a
// link; 0: no limit.
void TreeNetwork::add_rated_tier(const RankBlocks& blocks, int tier, const std::vector<int>& hosts,
                                 double rate) {
  first_link_.push_back(static_cast<int>(links_.size()));
  std::vector<int>& block_of = block_of_.emplace_back();
  std::vector<int> first_ranks(static_cast<std::size_t>(blocks.blocks(tier)), -1);
  for (const int rank : hosts) {
    block_of.push_back(blocks.block(tier, rank));
    int& first = first_ranks[static_cast<std::size_t>(block_of.back())];
    if (first < 0) first = rank;
  }
  for (const int rank : first_ranks) {
    for (const LinkWay way : {LinkWay::kOut, LinkWay::kInto}) {
      links_.push_back(
          {link_of_block(fmt::format("rank {}", rank), tier, way), rate > 0.0 ? rate : kNoLimit});
    }
  }
}

std::optional<double> TreeNetwork::latency(int from, int to) const {
  if (distances_.empty()) return {};
  return distances_[static_cast<std::size_t>(distance(from, to))].latency;
}

double TreeNetwork::highest_rate(int from, int to) const {
  if (distances_.empty()) return Network::highest_rate(from, to);
  return distances_[static_cast<std::size_t>(distance(from, to))].highest_rate;
}

int TreeNetwork::distance(int from, int to) const {
  const auto source = static_cast<std::size_t>(place_of_[static_cast<std::size_t>(from)]);
  const auto target = static_cast<std::size_t>(place_of_[static_cast<std::size_t>(to)]);
  if (source == target) return 0;
  int tier = 1;
  for (const std::vector<int>& blocks : block_of_) {
    if (blocks[source] == blocks[target]) break;
    ++tier;
  }
  return std::min(tier, static_cast<int>(distances_.size()) - 1);
}

void TreeNetwork::count_everyone(std::vector<double>& messages) const {
  const std::size_t hosts =
      static_cast<std::size_t>(block_of_.empty() ? 1 + *std::ranges::max_element(place_of_)
                                                 : static_cast<int>(block_of_.front().size()));
  const auto all = static_cast<double>(ranks());
  std::vector<double> inside(hosts);  // ranks of each host
  for (const int place : place_of_) inside[static_cast<std::size_t>(place)] += 1.0;
  messages.assign(links_.size(), 0.0);
  for (std::size_t host = 0; host < hosts; ++host) {
    const std::size_t first = kLinksOfHost * host;
    messages[first] = messages[first + 1] = inside[host] * (all - inside[host]);
    messages[first + 2] = inside[host] * (inside[host] - 1.0);
  }
  for (std::size_t tier = 0; tier < block_of_.size(); ++tier) {
    std::vector<double> of_block;
    for (std::size_t host = 0; host < hosts; ++host) {
      const auto block = static_cast<std::size_t>(block_of_[tier][host]);
      if (block >= of_block.size()) of_block.resize(block + 1);
      of_block[block] += inside[host];
    }
    for (std::size_t block = 0; block < of_block.size(); ++block) {
      const std::size_t first = static_cast<std::size_t>(first_link_[tier]) + 2 * block;
      messages[first] = messages[first + 1] = of_block[block] * (all - of_block[block]);
    }
  }
}

RankBlocks TreeNetwork::rank_blocks() const {
  std::vector<std::vector<int>> tiers{place_of_};
  for (const std::vector<int>& blocks : block_of_) {
    std::vector<int> of_ranks;
    for (const int place : place_of_) of_ranks.push_back(blocks[static_cast<std::size_t>(place)]);
    tiers.push_back(std::move(of_ranks));
  }
  // A tier that holds all ranks in one block says nothing.
  while (tiers.size() > 1 && std::ranges::count(tiers.back(), tiers.back().front()) == ranks()) {
    tiers.pop_back();
  }
  return RankBlocks(ranks(), std::move(tiers));
}

}  // namespace trireme
