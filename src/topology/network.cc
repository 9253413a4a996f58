#include "trireme/topology/network.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/topology/fabric_summary.h"

#include "topology/fabric/link_names.h"
#include "topology/no_limit.h"

namespace trireme {
namespace {

int level_of(const Fabric& fabric, int vertex) {
  return fabric.vertices()[static_cast<std::size_t>(vertex)].level;
}

double rate_of(const Cable& cable, const TreeNetwork::Assumed& assumed) {
  return cable.bytes_per_second > 0.0 ? cable.bytes_per_second : assumed.cable_bytes_per_second;
}

}  // namespace

TreeNetwork::TreeNetwork(const Fabric& fabric, const std::vector<int>& host_of, Assumed assumed) {
  const auto& vertices = fabric.vertices();
  std::vector<int> hosts;  // in use, in the order of ranks
  std::map<int, int> places;
  for (const int host : host_of) {
    TRIREME_CHECK(0 <= host && host < static_cast<int>(vertices.size()) &&
                      !vertices[static_cast<std::size_t>(host)].is_switch,
                  fmt::format("vertex {} is no host", host));
    const auto [place, is_new] = places.emplace(host, static_cast<int>(hosts.size()));
    if (is_new) hosts.push_back(host);
    place_of_.push_back(place->second);
  }
  add_hosts(fabric, hosts, assumed);

  int highest = 0;
  for (const FabricVertex& vertex : vertices) highest = std::max(highest, vertex.level);
  for (int tier = 1; tier < std::min(highest, kMostTiers); ++tier) {
    add_tier(fabric, hosts, assumed, tier, blocks_of(fabric, tier));
  }
}

void TreeNetwork::add_hosts(const Fabric& fabric, const std::vector<int>& hosts, Assumed assumed) {
  std::vector<double> rates(fabric.vertices().size(), 0.0);
  for (const Cable& cable : fabric.cables()) {
    for (const int end : {cable.a, cable.b}) {
      rates[static_cast<std::size_t>(end)] += rate_of(cable, assumed);
    }
  }
  for (const int host : hosts) {
    const auto i = static_cast<std::size_t>(host);
    const std::string& name = fabric.vertices()[i].name;
    const double rate = rates[i] > 0.0 ? rates[i] : assumed.cable_bytes_per_second;
    for (const LinkWay way : {LinkWay::kOut, LinkWay::kInto}) {
      links_.push_back({link_of_host(name, way), rate});
    }
    links_.push_back({"memory of " + name, assumed.memory_bytes_per_second});
  }
}

void TreeNetwork::add_tier(const Fabric& fabric, const std::vector<int>& hosts, Assumed assumed,
                           int tier, const std::vector<int>& blocks) {
  std::map<int, int> numbers;  // of the blocks that hold hosts in use
  std::vector<int> block_of;
  std::vector<std::string> names;  // of the first host of each
  for (const int host : hosts) {
    const auto [block, is_new] =
        numbers.emplace(blocks[static_cast<std::size_t>(host)], static_cast<int>(numbers.size()));
    if (is_new) names.push_back(fabric.vertices()[static_cast<std::size_t>(host)].name);
    block_of.push_back(block->second);
  }
  std::vector<double> up(numbers.size(), 0.0);
  for (const Cable& cable : fabric.cables()) {
    const bool a_is_lower = level_of(fabric, cable.a) < level_of(fabric, cable.b);
    const int inside = a_is_lower ? cable.a : cable.b, outside = a_is_lower ? cable.b : cable.a;
    if (level_of(fabric, inside) < 0 || level_of(fabric, outside) != tier + 1) continue;
    const auto block = numbers.find(blocks[static_cast<std::size_t>(inside)]);
    if (level_of(fabric, inside) <= tier && block != numbers.end()) {
      up[static_cast<std::size_t>(block->second)] += rate_of(cable, assumed);
    }
  }
  first_link_.push_back(static_cast<int>(links_.size()));
  for (std::size_t i = 0; i < up.size(); ++i) {
    for (const LinkWay way : {LinkWay::kOut, LinkWay::kInto}) {
      links_.push_back({link_of_block(names[i], tier, way), up[i] > 0.0 ? up[i] : kNoLimit});
    }
  }
  block_of_.push_back(std::move(block_of));
}

void TreeNetwork::route(int from, int to, std::vector<int>& links) const {
  const auto source = static_cast<std::size_t>(place_of_[static_cast<std::size_t>(from)]);
  const auto target = static_cast<std::size_t>(place_of_[static_cast<std::size_t>(to)]);
  const auto link_of = [](std::size_t host, int which) {
    return kLinksOfHost * static_cast<int>(host) + which;
  };
  if (source == target) {
    links.push_back(link_of(source, 2));
    return;
  }
  links.push_back(link_of(source, 0));
  for (std::size_t tier = 0; tier < block_of_.size(); ++tier) {
    const int below = block_of_[tier][source], above = block_of_[tier][target];
    if (below == above) break;
    links.push_back(first_link_[tier] + 2 * below);
    links.push_back(first_link_[tier] + 2 * above + 1);
  }
  links.push_back(link_of(target, 1));
}

int TreeNetwork::block(int tier, int rank) const {
  const int place = place_of_.at(static_cast<std::size_t>(rank));
  if (tier == 0) return place;
  return block_of_.at(static_cast<std::size_t>(tier - 1)).at(static_cast<std::size_t>(place));
}

const Link& TreeNetwork::way_up(int tier, int rank) const {
  const int first = tier == 0 ? 0 : first_link_.at(static_cast<std::size_t>(tier - 1));
  const int links_of_each = tier == 0 ? kLinksOfHost : 2;
  return links_[static_cast<std::size_t>(first + links_of_each * block(tier, rank))];
}

}  // namespace trireme
