#include "trireme/topology/rank_order.h"

#include <algorithm>
#include <cctype>
#include <map>
#include <numeric>
#include <tuple>

#include "trireme/base/error.h"

#include "topology/planning/place_loads.h"

namespace trireme {
namespace {

// A name in pieces that compare as people sort: "n9" before "n10".
std::vector<std::pair<std::size_t, std::string>> sort_key(const std::string& name) {
  std::vector<std::pair<std::size_t, std::string>> pieces;
  for (std::size_t begin = 0; begin < name.size();) {
    const auto is_digit = [&](std::size_t i) {
      return std::isdigit(static_cast<unsigned char>(name[i])) != 0;
    };
    std::size_t end = begin + 1;
    while (end < name.size() && is_digit(end) == is_digit(begin)) ++end;
    // Digits without leading zeros: the longer number is the larger one.
    const std::size_t first =
        is_digit(begin) ? std::min(name.find_first_not_of('0', begin), end - 1) : begin;
    pieces.emplace_back(is_digit(begin) ? end - first : 0, name.substr(first, end - first));
    begin = end;
  }
  return pieces;
}

// Returns the position of each host when hosts are sorted by name.
std::vector<int> positions_by_name(const std::vector<std::string>& hosts) {
  using Key = std::pair<std::vector<std::pair<std::size_t, std::string>>, std::string>;
  std::map<Key, int> sorted;
  for (const std::string& host : hosts) sorted[{sort_key(host), host}] = 0;
  int next = 0;
  for (auto& [key, position] : sorted) position = next++;
  std::vector<int> positions;
  positions.reserve(hosts.size());
  for (const std::string& host : hosts) positions.push_back(sorted.at({sort_key(host), host}));
  return positions;
}

HostsOfPlaces hosts_of(const TreeNetwork& network, const std::vector<int>& order) {
  HostsOfPlaces hosts;
  hosts.reserve(order.size());
  for (const int rank : order) hosts.push_back(network.block(0, rank));
  return hosts;
}

OrderCost cost_of(const PlaceLoads& loads, const TreeNetwork& network, const HostsOfPlaces& hosts) {
  const std::vector<double> seconds = loads.seconds_of(hosts);
  const PlaceLoads::Sum sum = PlaceLoads::sum_of(seconds);
  OrderCost cost{.busiest = sum.busiest, .total = sum.total, .link = {}};
  if (sum.busiest <= 0.0) return cost;
  for (int tier = 0; tier < loads.tiers(); ++tier) {
    for (int host = 0; host < loads.hosts(); ++host) {
      const double here = seconds[static_cast<std::size_t>(loads.block(tier, host))];
      if (here < sum.busiest * (1.0 - 1e-6)) continue;  // the first of those that are equal
      cost.link = network.way_up(tier, loads.ranks_of(host).front()).name;
      return cost;
    }
  }
  return cost;
}

// The ranks of a host take its places in rising order.
std::vector<int> ranks_of(const PlaceLoads& loads, const HostsOfPlaces& hosts) {
  std::vector<std::size_t> taken(static_cast<std::size_t>(loads.hosts()), 0);
  std::vector<int> order;
  order.reserve(hosts.size());
  for (const int host : hosts) {
    order.push_back(loads.ranks_of(host)[taken[static_cast<std::size_t>(host)]++]);
  }
  return order;
}

}  // namespace

std::vector<int> fabric_order(const TreeNetwork& network, const std::vector<std::string>& hosts) {
  const std::vector<int> positions = positions_by_name(hosts);
  const auto ranks = static_cast<std::size_t>(network.ranks());
  TRIREME_CHECK(hosts.size() == ranks, "as many hosts as the network has ranks");
  // Each block comes where its first host does.
  std::vector<std::vector<int>> keys(ranks);
  for (int tier = network.tiers(); tier >= 1; --tier) {
    std::map<int, int> first;
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      const auto [found, is_new] =
          first.emplace(network.block(tier, static_cast<int>(rank)), positions[rank]);
      if (!is_new) found->second = std::min(found->second, positions[rank]);
    }
    for (std::size_t rank = 0; rank < ranks; ++rank) {
      keys[rank].push_back(first.at(network.block(tier, static_cast<int>(rank))));
    }
  }
  for (std::size_t rank = 0; rank < ranks; ++rank) keys[rank].push_back(positions[rank]);
  std::vector<int> order(ranks);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) {
    return keys[static_cast<std::size_t>(a)] < keys[static_cast<std::size_t>(b)];
  });
  return order;
}

OrderCost cost_of_order(const GridShape& shape, const GridTraffic& traffic,
                        const TreeNetwork& network, const std::vector<int>& order) {
  TRIREME_CHECK(shape.ranks() == network.ranks() && shape.ranks() == static_cast<int>(order.size()),
                "an order of as many ranks as the grid and the network have");
  return cost_of(PlaceLoads(shape, traffic, network), network, hosts_of(network, order));
}

RankOrder order_ranks(const GridShape& shape, const GridTraffic& traffic,
                      const TreeNetwork& network, const std::vector<std::string>& hosts) {
  TRIREME_CHECK(shape.ranks() == network.ranks(), "as many ranks as places");
  const PlaceLoads loads(shape, traffic, network);
  RankOrder result;
  result.ranks.resize(static_cast<std::size_t>(shape.ranks()));
  std::iota(result.ranks.begin(), result.ranks.end(), 0);
  const HostsOfPlaces launcher = hosts_of(network, result.ranks);
  HostsOfPlaces best = launcher;
  result.exact = search_hosts(shape, loads, hosts_of(network, fabric_order(network, hosts)), best);
  if (best != launcher) result.ranks = ranks_of(loads, best);
  result.launcher = cost_of(loads, network, launcher);
  result.chosen = cost_of(loads, network, best);
  return result;
}

}  // namespace trireme
