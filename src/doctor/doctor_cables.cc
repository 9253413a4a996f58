// The ports of nodes, compared with the cables that a description of the fabric has.
#include <algorithm>
#include <map>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/printable.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/fabric_summary.h"
#include "trireme/topology/odd_cables.h"
#include "trireme/topology/probe.h"

#include "doctor/doctor_checks.h"

namespace trireme {
namespace {

using doctor::kReached;

constexpr std::size_t kMostCables = 8;  // between switches; the others are counted
constexpr const char* kRemedy =
    "see to its cable and its connectors: some of its lanes may be lost";

// A cable with its lower end first.
struct Way {
  const Cable* cable;
  int low, high;
};
std::vector<Way> ways_of(const Fabric& fabric) {
  const auto level = [&](int vertex) {
    return fabric.vertices()[static_cast<std::size_t>(vertex)].level;
  };
  std::vector<Way> ways;
  for (const Cable& cable : fabric.cables()) {
    const bool a_is_low = level(cable.a) <= level(cable.b);
    ways.push_back({&cable, a_is_low ? cable.a : cable.b, a_is_low ? cable.b : cable.a});
  }
  return ways;
}

std::string name_of_vertex(const Fabric& fabric, int vertex) {
  return shown(fabric.vertices()[static_cast<std::size_t>(vertex)].name);
}

// Another problem that is known of the port comes first.
void put(NodeFindings& node, Finding finding) {
  const auto known = std::ranges::find(node.findings, finding.subject, &Finding::subject);
  if (known == node.findings.end()) {
    node.findings.push_back(std::move(finding));
  } else if (known->verdict != Verdict::kProblem) {
    *known = std::move(finding);
  }
}

// `usual` is the rate of other cables from hosts to the same switch.
void compare(NodeFindings& node, const Cable& cable, const std::string& leaf, double usual) {
  const auto port = std::ranges::find_if(
      node.ports, [&](const LocalPort& each) { return leads_to(cable, each); });
  const bool is_here = port != node.ports.end();
  const std::string subject = is_here                 ? doctor::name_of_port(*port)
                              : cable.adapter.empty() ? "cable"
                                                      : shown("cable " + cable.adapter);
  const auto say = [&](std::string what) {
    put(node, {Verdict::kProblem, subject, std::move(what), kRemedy});
  };
  const double rate = cable.bytes_per_second;
  const std::string_view source = name_of(cable.rate_from);
  if (is_here && !doctor::works(*port)) {
    say(fmt::format("{}, but {} has a cable of {} there", doctor::state_of(*port), source,
                    gigabits(rate)));
  } else if (is_here && port->bytes_per_second > 0.0) {
    if (port->bytes_per_second < kSlowShare * rate) {
      say(fmt::format("{}, but {} says that its cable has {}", port->rate, source, gigabits(rate)));
    } else if (port->bytes_per_second < kSlowShare * usual) {
      say(fmt::format("{}, but usual at {} is {}", port->rate, leaf, gigabits(usual)));
    }
  } else if (rate < kSlowShare * usual) {
    say(fmt::format("{} says that its cable has {}; usual at {} is {}", source, gigabits(rate),
                    leaf, gigabits(usual)));
  }
}

// What is slow between the switches that lead from some of these hosts to others.
std::vector<Finding> compare_neighbours(const Fabric& fabric, const std::vector<int>& hosts) {
  const Fabric part = part_of(fabric, hosts);
  std::vector<Finding> findings;
  std::size_t more = 0;
  for (const SlowCable& slow : slow_cables(part)) {
    if (!part.vertices()[static_cast<std::size_t>(slow.low)].is_switch) continue;
    if (findings.size() == kMostCables) {
      ++more;
      continue;
    }
    findings.push_back({Verdict::kWarning, "cable", text_of(part, slow), kRemedy});
  }
  if (more > 0) {
    findings.push_back({Verdict::kWarning, "cable", fmt::format("and {} cables more", more),
                        "trireme topo show --json has all rates"});
  }
  return findings;
}

// Leaf switches of these hosts that have less capacity upwards than others of the fabric, where the
// hosts need it.
std::vector<Finding> compare_tapers(const Fabric& fabric, const std::set<int>& hosts) {
  std::set<int> leaves;
  for (const Way& way : ways_of(fabric)) {
    if (hosts.contains(way.low)) leaves.insert(way.high);
  }
  std::vector<Finding> findings;
  if (leaves.size() < 2) return findings;
  for (const OddTaper& odd : odd_tapers(fabric)) {
    if (!odd.is_worse() || !leaves.contains(odd.leaf) || findings.size() == kMostCables) continue;
    findings.push_back({Verdict::kWarning, "taper", text_of(fabric, odd),
                        "see to its cables upwards: some may be missing"});
  }
  return findings;
}

// Bytes per second of the cables that lead up from the switches of `level`, by the number in
// `blocks` of the hosts below them, where the rates of all of them are known.
std::map<int, double> rates_upwards(const Fabric& fabric, int level,
                                    const std::vector<int>& blocks) {
  const auto level_of = [&](int vertex) {
    return fabric.vertices()[static_cast<std::size_t>(vertex)].level;
  };
  std::map<int, double> rates;
  std::set<int> unknown;
  for (const Way& way : ways_of(fabric)) {
    if (level_of(way.low) != level || level_of(way.high) <= level) continue;
    const int block = blocks[static_cast<std::size_t>(way.low)];
    rates[block] += way.cable->bytes_per_second;
    if (way.cable->bytes_per_second <= 0.0) unknown.insert(block);
  }
  for (const int block : unknown) rates.erase(block);
  return rates;
}

// What the nodes of a block should reach upwards.
struct Upwards {
  double cables, nodes;  // bytes per second of the cables, and of what all nodes can send

  double expected() const { return std::min(cables, nodes); }
};

}  // namespace

std::vector<Finding> compare_uplinks(const Probe& probe, const RankBlocks& blocks,
                                     const std::vector<std::string>& hosts, const Fabric& fabric) {
  std::vector<Finding> findings;
  const auto& distances = probe.rates.distances;
  for (int tier = 1; tier < blocks.tiers(); ++tier) {
    const auto distance = static_cast<std::size_t>(tier) + 1;
    if (distance >= distances.size() || distances[distance].block <= 0.0) continue;
    const double reached = distances[distance].block;
    // The most that a node has sent to any other: what it sent through a slow cable would make that
    // cable look good.
    double of_node = 0.0;
    for (std::size_t i = 1; i <= distance; ++i) of_node = std::max(of_node, distances[i].host);
    std::map<int, std::set<int>> members;  // the hosts of each block, vertices
    bool all_known = true;
    for (int rank = 0; rank < blocks.ranks() && all_known; ++rank) {
      const auto vertex = find_node(fabric, hosts[static_cast<std::size_t>(rank)]);
      all_known = vertex.has_value();
      if (all_known) members[blocks.block(tier, rank)].insert(*vertex);
    }
    const std::vector<int> below = blocks_of(fabric, tier);
    const std::map<int, double> rates = rates_upwards(fabric, tier, below);
    std::vector<Upwards> all;
    for (const auto& [block, nodes] : members) {
      const auto cables = rates.find(below[static_cast<std::size_t>(*nodes.begin())]);
      all_known = all_known && cables != rates.end();
      if (all_known) {
        all.push_back({cables->second, of_node * static_cast<double>(nodes.size())});
      }
    }
    if (!all_known || all.empty()) continue;
    // What was measured is a rate between two blocks, which the smaller one bounds.
    const Upwards least = *std::ranges::min_element(all, {}, &Upwards::expected);
    const std::string what = fmt::format(
        "the nodes below {} reach {} together; its cables upwards have {}, and the nodes could "
        "send {}",
        tier == 1 ? "a leaf switch" : fmt::format("a switch of level {}", tier), gigabits(reached),
        gigabits(least.cables), gigabits(least.nodes));
    if (reached < kReached * least.expected()) {
      findings.push_back({Verdict::kWarning, "uplinks", what,
                          "see to these cables, and to who else uses them (trireme topo show)"});
    } else {
      findings.push_back({Verdict::kOk, "uplinks", what, ""});
    }
  }
  return findings;
}

std::vector<Finding> compare_with_cables(std::vector<NodeFindings>& nodes, const Fabric& fabric) {
  const bool knows_rates = std::ranges::any_of(
      fabric.cables(), [](const Cable& cable) { return cable.bytes_per_second > 0.0; });
  if (!knows_rates) return {};
  std::vector<std::string> names;
  for (const NodeFindings& node : nodes) names.push_back(node.node);
  Fabric copy = fabric;
  std::vector<int> host_of = add_nodes(copy, names);
  const int known = static_cast<int>(fabric.vertices().size());
  std::map<int, std::size_t> node_of;  // of each host
  std::set<int> hosts;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    if (host_of[i] >= known) host_of[i] = host_of_ports(fabric, nodes[i].ports).value_or(known);
    if (host_of[i] < known) {
      node_of[host_of[i]] = i;
      hosts.insert(host_of[i]);
    } else {
      nodes[i].findings.push_back(
          {Verdict::kNotHere, "cable", "what describes the fabric does not have this node", ""});
    }
  }
  const std::vector<Way> ways = ways_of(fabric);
  const std::vector<double> usual = usual_rates(fabric);
  for (std::size_t i = 0; i < ways.size(); ++i) {
    const Way& way = ways[i];
    const auto found = node_of.find(way.low);
    if (found == node_of.end() || way.cable->bytes_per_second <= 0.0) continue;
    NodeFindings& node = nodes[found->second];
    node.cable_bytes_per_second =
        std::max(node.cable_bytes_per_second, way.cable->bytes_per_second);
    compare(node, *way.cable, name_of_vertex(fabric, way.high), usual[i]);
  }
  if (hosts.empty()) return {};
  std::vector<Finding> between = compare_neighbours(fabric, {hosts.begin(), hosts.end()});
  for (Finding& finding : compare_tapers(fabric, hosts)) between.push_back(std::move(finding));
  return between;
}

}  // namespace trireme
