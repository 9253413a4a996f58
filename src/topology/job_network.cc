// What is known of the network between the ranks of a job.
#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/topology/planner.h"

namespace trireme {
namespace {

// The number of each rank's node.
std::vector<int> nodes_of(const std::vector<std::string>& hosts) {
  std::map<std::string, int> numbers;
  std::vector<int> nodes;
  for (const std::string& host : hosts) {
    nodes.push_back(numbers.emplace(host, static_cast<int>(numbers.size())).first->second);
  }
  return nodes;
}

// The rates of a network's links, where they are known; the lowest of each kind.
void take_rates(NetworkRates& rates, const TreeNetwork& network, const RankBlocks& blocks) {
  std::vector<double> lowest(rates.distances.size(), 0.0);
  std::vector<int> route;
  for (int rank = 1; rank < blocks.ranks(); ++rank) {
    const int distance = blocks.distance(0, rank);
    if (distance == 0) continue;
    route.clear();
    network.route(0, rank, route);
    for (int tier = 0; tier < distance; ++tier) {
      // Up and down links of a tier follow each other, but for the hosts' own at both ends.
      const auto link =
          static_cast<std::size_t>(route[static_cast<std::size_t>(tier == 0 ? 0 : 2 * tier - 1)]);
      double& low = lowest[static_cast<std::size_t>(tier + 1)];
      const double rate = network.links()[link].bytes_per_second;
      low = low == 0.0 ? rate : std::min(low, rate);
    }
  }
  for (std::size_t distance = 1; distance < lowest.size(); ++distance) {
    DistanceRates& far = rates.distances[distance];
    if (lowest[1] > 0.0) far.flow = far.host = lowest[1];
    if (distance > 1 && lowest[distance] > 0.0) far.block = lowest[distance];
  }
}

}  // namespace

JobNetwork job_network(const StoredRates& stored, const std::string& origin,
                       const std::vector<std::string>& hosts) {
  std::map<std::string_view, std::size_t> places;
  for (std::size_t i = 0; i < stored.hosts.size(); ++i) places.emplace(stored.hosts[i], i);
  std::vector<std::vector<int>> tiers{nodes_of(hosts)};
  for (const std::vector<int>& tier : stored.tiers) {
    std::vector<int> blocks;
    for (const std::string& host : hosts) {
      const auto place = places.find(host);
      TRIREME_CHECK(place != places.end(), host + " is not among the hosts of the rates");
      blocks.push_back(tier[place->second]);
    }
    tiers.push_back(std::move(blocks));
  }
  return {.blocks = RankBlocks(static_cast<int>(hosts.size()), std::move(tiers)),
          .rates = stored.rates,
          .source = fmt::format("{}, measured {}", origin, utc_text(stored.measured))};
}

JobNetwork job_network(Fabric fabric, const std::string& origin,
                       const std::vector<std::string>& hosts, std::string& remark) {
  std::vector<int> host_of;
  std::vector<std::string> missing;
  for (const std::string& host : hosts) {
    if (!fabric.host(host)) missing.push_back(host);
    host_of.push_back(fabric.add_host(host));
  }
  if (!missing.empty()) {
    remark = fmt::format("{}: {} not found there; counted as beyond all other nodes", origin,
                         shown(node_list(std::move(missing))));
  }
  const TreeNetwork network(fabric, host_of, {});
  const bool knows_rates =
      std::ranges::any_of(fabric.cables(), [](const Cable& c) { return c.bytes_per_second > 0.0; });
  JobNetwork result{.blocks = network.rank_blocks(), .rates = {}, .source = {}};
  result.rates = assumed_rates(result.blocks);
  if (knows_rates) take_rates(result.rates, network, result.blocks);
  result.source =
      fmt::format("{}, {}", origin, knows_rates ? "rates of its cables" : "assumed rates");
  return result;
}

std::string job_network_to_text(const JobNetwork& network) {
  Json tiers = Json::array();
  for (int tier = 0; tier < network.blocks.tiers(); ++tier) {
    Json blocks = Json::array();
    for (int rank = 0; rank < network.blocks.ranks(); ++rank) {
      blocks.push_back(network.blocks.block(tier, rank));
    }
    tiers.push_back(std::move(blocks));
  }
  StoredRates stored;
  stored.rates = network.rates;
  const std::size_t distances = std::max<std::size_t>(network.rates.distances.size(), 2);
  stored.tiers.resize(distances - 2);  // of no hosts
  return Json::object({{"source", network.source},
                       {"ranks", network.blocks.ranks()},
                       {"tiers", std::move(tiers)},
                       {"rates", write_network_rates(stored)}})
      .dump();
}

JobNetwork job_network_from_text(const std::string& text) {
  const Json object = Json::parse(text);
  std::vector<std::vector<int>> tiers;
  for (const Json& tier : object.at("tiers").items()) {
    tiers.emplace_back();
    for (const Json& block : tier.items()) tiers.back().push_back(block.small_integer());
  }
  return {.blocks = RankBlocks(object.at("ranks").small_integer(), std::move(tiers)),
          .rates = read_network_rates(object.at("rates").text(), "the rates").rates,
          .source = object.at("source").text()};
}

}  // namespace trireme
