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
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/fabric_summary.h"
#include "trireme/topology/planner.h"

#include "topology/no_limit.h"

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

// The lowest rate of a host's cables, of those hosts whose cables all have a known rate. 0: there
// is none.
double known_host_rate(const Fabric& fabric, const TreeNetwork& network,
                       const std::vector<int>& host_of) {
  std::vector<int> cables(fabric.vertices().size(), 0);
  for (const Cable& cable : fabric.cables()) {
    for (const int end : {cable.a, cable.b}) {
      int& known = cables[static_cast<std::size_t>(end)];
      if (cable.bytes_per_second <= 0.0) known = -1;
      if (known >= 0) ++known;
    }
  }
  double lowest = 0.0;
  for (std::size_t rank = 0; rank < host_of.size(); ++rank) {
    if (cables[static_cast<std::size_t>(host_of[rank])] <= 0) continue;
    const double rate = network.way_up(0, static_cast<int>(rank)).bytes_per_second;
    lowest = lowest == 0.0 ? rate : std::min(lowest, rate);
  }
  return lowest;
}

// Takes the rates of uplinks that are known, the lowest of each tier.
void take_block_rates(NetworkRates& rates, const Fabric& fabric, const TreeNetwork& network) {
  const std::vector<FabricLevel> levels = levels_of(fabric);
  for (int tier = 1; tier <= network.tiers(); ++tier) {
    const auto level = static_cast<std::size_t>(tier);
    if (level + 1 >= rates.distances.size() || level >= levels.size()) break;
    if (levels[level].cables_up == 0 || levels[level].unknown_rates > 0) continue;
    double lowest = kNoLimit;
    for (int rank = 0; rank < network.ranks(); ++rank) {
      lowest = std::min(lowest, network.way_up(tier, rank).bytes_per_second);
    }
    if (lowest < kNoLimit) rates.distances[level + 1].block = lowest;
  }
}

}  // namespace

RankBlocks blocks_of_ranks(const StoredRates& stored, const std::vector<std::string>& hosts) {
  const std::vector<int> places = match_nodes(hosts, stored.hosts);
  std::vector<std::vector<int>> tiers{nodes_of(hosts)};
  for (const std::vector<int>& tier : stored.tiers) {
    std::vector<int> blocks;
    for (std::size_t i = 0; i < hosts.size(); ++i) {
      TRIREME_CHECK(places[i] >= 0, hosts[i] + " is not among the hosts of the rates");
      blocks.push_back(tier[static_cast<std::size_t>(places[i])]);
    }
    tiers.push_back(std::move(blocks));
  }
  return RankBlocks(static_cast<int>(hosts.size()), std::move(tiers));
}

JobNetwork job_network(const StoredRates& stored, const std::string& origin,
                       const std::vector<std::string>& hosts) {
  return {.blocks = blocks_of_ranks(stored, hosts),
          .rates = stored.rates,
          .source = fmt::format("{}, measured {}", origin, utc_text(stored.measured)),
          .errors = errors_of(stored)};
}

JobNetwork job_network(Fabric fabric, const std::string& origin,
                       const std::vector<std::string>& hosts, std::string& remark) {
  std::vector<std::string> missing;
  const std::vector<int> host_of = add_nodes(fabric, hosts, &missing);
  if (!missing.empty()) {
    remark = fmt::format("{}: {} not found there; counted as beyond all other nodes", origin,
                         shown(node_list(std::move(missing))));
  }
  const TreeNetwork network(fabric, host_of, {});
  JobNetwork result{.blocks = network.rank_blocks(), .rates = {}, .source = {}};
  const double host_rate = known_host_rate(fabric, network, host_of);
  result.rates =
      host_rate > 0.0 ? assumed_rates(result.blocks, host_rate) : assumed_rates(result.blocks);
  const NetworkRates assumed = result.rates;
  take_block_rates(result.rates, fabric, network);
  const bool knows_rates = host_rate > 0.0 || result.rates.distances != assumed.distances;
  result.source =
      fmt::format("{}, {}", origin, knows_rates ? "speeds of its cables" : "usual speeds assumed");
  return result;
}

std::string take_rates(JobNetwork& network, const StoredRates& stored) {
  std::string why_not = why_other_tiers(stored.rates, network.blocks.tiers());
  if (!why_not.empty()) return why_not;
  network.rates = stored.rates;
  network.errors = errors_of(stored);
  return why_not;
}

std::vector<std::string> hosts_of(const Fabric& fabric) {
  std::vector<std::string> names;
  std::vector<int> host_of;
  for (std::size_t i = 0; i < fabric.vertices().size(); ++i) {
    if (fabric.vertices()[i].is_switch) continue;
    names.push_back(fabric.vertices()[i].name);
    host_of.push_back(static_cast<int>(i));
  }
  if (names.empty()) return names;
  std::vector<std::string> ordered;
  for (const int rank : TreeNetwork(fabric, host_of, {}).rank_blocks().in_order()) {
    ordered.push_back(names[static_cast<std::size_t>(rank)]);
  }
  return ordered;
}

RankBlocks blocks_in(Fabric fabric, const std::vector<std::string>& hosts,
                     std::vector<std::string>& missing) {
  const std::vector<int> host_of = add_nodes(fabric, hosts, &missing);
  if (missing.empty()) return TreeNetwork(fabric, host_of, {}).rank_blocks();
  return RankBlocks(static_cast<int>(hosts.size()), {nodes_of(hosts)});
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
  Json errors = Json::array();
  for (const MeasuredError& one : network.errors) {
    errors.push_back(Json::array({name_of(one.collective), name_of(one.algorithm),
                                  std::uint64_t{one.bytes}, one.ranks, one.seconds, one.partials}));
  }
  return Json::object({{"source", network.source},
                       {"ranks", network.blocks.ranks()},
                       {"tiers", std::move(tiers)},
                       {"errors", std::move(errors)},
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
  std::vector<MeasuredError> errors;
  for (const Json& one : object.at("errors").items()) {
    errors.push_back({.collective = collective_named(one.at(std::size_t{0}).text()).value(),
                      .algorithm = algorithm_named(one.at(1).text()).value(),
                      .bytes = static_cast<std::size_t>(one.at(2).unsigned_integer()),
                      .ranks = one.at(3).small_integer(),
                      .seconds = one.at(4).number(),
                      .partials = one.at(5).small_integer()});
  }
  return {.blocks = RankBlocks(object.at("ranks").small_integer(), std::move(tiers)),
          .rates = read_network_rates(object.at("rates").text(), "the rates").rates,
          .source = object.at("source").text(),
          .errors = std::move(errors)};
}

}  // namespace trireme
