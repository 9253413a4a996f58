// The networks and nodes that the program knows by name, and those that files describe.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>
#include <string_view>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/options.h"
#include "trireme/base/printable.h"
#include "trireme/plan/network_costs.h"

namespace trireme::plan {
namespace {

constexpr std::string_view kNetworks =
#include "networks_json.inc"
    ;

// A kind of node with GPUs.
struct NodeKind {
  std::string title, source;
  std::string network;               // the usual one
  std::vector<std::string> devices;  // GPUs that such nodes have, as known_devices calls them
  int gpus = 1, adapters = 1;
  NcclNodeLinks links = {};
};

// A network, without what its nodes are.
struct KnownFabric {
  NetworkDescription network;  // titles, constants, leaf switches
  std::string node;            // the usual kind
  double rate = 0.0;           // of an adapter
  double latency = 0.0, leaf_latency = 0.0;
  double taper = 1.0;
};

struct KnownNetworks {
  DistanceRates inside;
  SimulatedCosts costs;
  std::map<std::string, NodeKind> nodes;
  std::map<std::string, KnownFabric> fabrics;
};

NodeKind read_node(const Json& entry) {
  std::vector<std::string> devices;
  for (const Json& device : entry.at("devices").items()) devices.push_back(device.text());
  return {.title = entry.at("title").text(),
          .source = entry.at("source").text(),
          .network = entry.at("network").text(),
          .devices = std::move(devices),
          .gpus = entry.at("gpus").small_integer(),
          .adapters = entry.at("adapters").small_integer(),
          .links = {.latency = entry.at("link_latency").number(),
                    .bytes_per_second = entry.at("link_rate").number()}};
}

KnownFabric read_fabric(const std::string& name, const Json& entry) {
  KnownFabric fabric{.network = {},
                     .node = entry.at("node").text(),
                     .rate = entry.at("rate").number(),
                     .latency = entry.at("latency").number(),
                     .leaf_latency = entry.at("leaf_latency").number(),
                     .taper = entry.at("taper").number()};
  NetworkDescription& network = fabric.network;
  network.name = name;
  network.title = entry.at("title").text();
  network.source = entry.at("source").text();
  network.nodes_of_leaf = entry.at("nodes_of_leaf").small_integer();
  network.constants = {.efficiency = entry.at("efficiency").number(),
                       .latency = entry.at("latency_factor").number(),
                       .start = entry.at("start").number()};
  network.interval = entry.at("interval").number();
  return fabric;
}

KnownNetworks read_known() {
  const Json file = Json::parse_unique(kNetworks);
  KnownNetworks known;
  const Json& host = file.at("host");
  known.inside = {.latency = host.at("latency").number(),
                  .flow = host.at("flow").number(),
                  .host = host.at("rate").number()};
  known.costs = {.message = host.at("message").number(),
                 .reduced_byte = host.at("reduced_byte").number()};
  for (const auto& [name, entry] : file.at("nodes").members()) {
    known.nodes.emplace(name, read_node(entry));
  }
  for (const auto& [name, entry] : file.at("networks").members()) {
    known.fabrics.emplace(name, read_fabric(name, entry));
  }
  return known;
}

const KnownNetworks& known() {
  static const KnownNetworks all = read_known();
  return all;
}

template <class Map>
std::vector<std::string> names_of(const Map& map) {
  std::vector<std::string> names;
  for (const auto& [name, entry] : map) names.push_back(name);
  return names;
}

// Nodes of fewer GPUs than their kind usually has have their share of its adapters.
int adapters_of(const NodeKind& kind, int gpus) {
  const int share = (kind.adapters * std::min(gpus, kind.gpus) + kind.gpus - 1) / kind.gpus;
  return std::max(share, 1);
}

NetworkDescription describe(const KnownFabric& fabric, const NodeKind* kind, int ranks_of_node) {
  NetworkDescription network = fabric.network;
  network.ranks_of_node = ranks_of_node;
  network.nccl = kind != nullptr;
  if (kind != nullptr) network.node_links = kind->links;
  const int adapters = kind != nullptr ? adapters_of(*kind, ranks_of_node) : 1;
  const double node = adapters * fabric.rate;
  network.rates = {
      .distances = {known().inside, {.latency = fabric.latency, .flow = fabric.rate, .host = node}},
      .costs = known().costs};
  if (network.nodes_of_leaf > 0) {
    network.rates.distances.push_back({.latency = fabric.leaf_latency,
                                       .flow = fabric.rate,
                                       .host = node,
                                       .block = network.nodes_of_leaf * node / fabric.taper});
  }
  return network;
}

std::vector<NetworkDescription> describe_all() {
  std::vector<NetworkDescription> all;
  for (const auto& [name, fabric] : known().fabrics) {
    const NodeKind& kind = known().nodes.at(fabric.node);
    all.push_back(describe(fabric, &kind, kind.gpus));
  }
  return all;
}

[[noreturn]] void refuse_name(std::string_view name, const std::string& what,
                              const std::vector<std::string>& names) {
  const auto nearest = nearest_name(name, names);
  if (name.empty()) {
    throw ConfigError(fmt::format("a {} has no name; as in hdr200-2:1+dgx-a100", what));
  }
  throw ConfigError(fmt::format("no {} is called {}{}; known are {}", what, shown(name),
                                nearest ? fmt::format("; the nearest is {}", *nearest) : "",
                                fmt::join(names, ", ")));
}

// How many nodes the leaf switches of a job have, where they have most. 0: there is but one switch.
int most_nodes_of_leaf(const RankBlocks& blocks) {
  if (blocks.tiers() < 2 || blocks.blocks(1) < 2) return 0;
  std::map<int, std::set<int>> nodes;
  for (int rank = 0; rank < blocks.ranks(); ++rank) {
    nodes[blocks.block(1, rank)].insert(blocks.block(0, rank));
  }
  std::size_t most = 0;
  for (const auto& [leaf, below] : nodes) most = std::max(most, below.size());
  return static_cast<int>(most);
}

}  // namespace

const std::vector<NetworkDescription>& known_networks() {
  static const std::vector<NetworkDescription> all = describe_all();
  return all;
}

const std::vector<std::string>& known_nodes() {
  static const std::vector<std::string> names = names_of(known().nodes);
  return names;
}

std::string usual_node(std::string_view device) {
  for (const auto& [name, kind] : known().nodes) {
    if (std::ranges::find(kind.devices, device) != kind.devices.end()) return name;
  }
  return "";
}

NetworkDescription known_network(std::string_view name, int ranks_of_node, bool on_gpus) {
  if (ranks_of_node < 1) {
    throw ConfigError(fmt::format("network {}: {} ranks on a node; at least 1 is needed",
                                  shown(name), ranks_of_node));
  }
  const std::size_t plus = name.find('+');
  std::string fabric_name(name.substr(0, plus));
  std::optional<std::string> kind_name;
  if (plus != std::string_view::npos) kind_name = std::string(name.substr(plus + 1));
  if (!kind_name && known().nodes.contains(fabric_name)) {
    kind_name = std::exchange(fabric_name, known().nodes.at(fabric_name).network);
  }
  const auto fabric = known().fabrics.find(fabric_name);
  if (fabric == known().fabrics.end()) {
    std::vector<std::string> names = names_of(known().fabrics);
    if (!kind_name) names.insert(names.end(), known_nodes().begin(), known_nodes().end());
    refuse_name(fabric_name, "network", names);
  }
  const auto kind = known().nodes.find(kind_name.value_or(fabric->second.node));
  if (kind == known().nodes.end()) refuse_name(*kind_name, "kind of node", known_nodes());
  NetworkDescription network =
      describe(fabric->second, on_gpus ? &kind->second : nullptr, ranks_of_node);
  network.name = name;
  if (on_gpus) {
    network.title += "; " + kind->second.title;
    network.source += "; " + kind->second.source;
  }
  return network;
}

NetworkDescription described_network(const JobNetwork& network, int ranks_of_node, bool on_gpus,
                                     bool measured) {
  NetworkDescription made;
  made.name = network.source;
  made.title = network.source;
  made.source = network.source;
  made.ranks_of_node = ranks_of_node;
  made.nodes_of_leaf = most_nodes_of_leaf(network.blocks);
  made.rates = network.rates;
  made.nccl = on_gpus;
  made.errors = network.errors;
  made.constants.efficiency = measured ? 1.0 : 0.9;
  made.interval = measured ? 0.2 : 0.4;
  check_network(made);
  return made;
}

}  // namespace trireme::plan
