#include "trireme/topology/fabric_summary.h"

#include <algorithm>
#include <map>
#include <set>

#include <fmt/format.h>

#include "trireme/base/text.h"

namespace trireme {
namespace {

int level_at(const Fabric& fabric, int vertex) {
  return fabric.vertices()[static_cast<std::size_t>(vertex)].level;
}

void add_source(std::vector<FabricSource>& sources, FabricSource source) {
  if (std::ranges::find(sources, source) == sources.end()) sources.push_back(source);
}

// Orders names by their numbers: "mlx5_10" comes after "mlx5_2".
struct ByNumbers {
  bool operator()(const std::string& a, const std::string& b) const {
    const auto key = [](const std::string& text) {
      const std::size_t digits = text.find_last_not_of("0123456789") + 1;
      return std::tuple(text.substr(0, digits), text.size() - digits, text.substr(digits));
    };
    return key(a) < key(b);
  }
};

}  // namespace

std::vector<FabricLevel> levels_of(const Fabric& fabric) {
  int highest = -1;
  for (const FabricVertex& vertex : fabric.vertices()) highest = std::max(highest, vertex.level);
  std::vector<FabricLevel> levels(static_cast<std::size_t>(highest + 1));
  for (std::size_t i = 0; i < levels.size(); ++i) levels[i].level = static_cast<int>(i);
  for (const FabricVertex& vertex : fabric.vertices()) {
    if (vertex.level >= 0) ++levels[static_cast<std::size_t>(vertex.level)].vertices;
  }
  for (const Cable& cable : fabric.cables()) {
    const auto [low, high] = std::minmax({level_at(fabric, cable.a), level_at(fabric, cable.b)});
    if (low < 0 || high != low + 1) continue;
    FabricLevel& level = levels[static_cast<std::size_t>(low)];
    ++level.cables_up;
    if (cable.bytes_per_second <= 0.0) ++level.unknown_rates;
    level.up_bytes_per_second += cable.bytes_per_second;
    add_source(level.sources, cable.from);
    add_source(level.sources, cable.rate_from);
  }
  for (std::size_t i = 0; i < levels.size(); ++i) {
    std::ranges::sort(levels[i].sources);
    if (i == 0) continue;
    levels[i].down_bytes_per_second = levels[i - 1].up_bytes_per_second;
    const bool known = levels[i - 1].unknown_rates == 0 && levels[i].unknown_rates == 0;
    if (known && levels[i].up_bytes_per_second > 0.0) {
      levels[i].taper = levels[i].down_bytes_per_second / levels[i].up_bytes_per_second;
    }
  }
  if (!levels.empty()) {
    for (const FabricVertex& vertex : fabric.vertices()) {
      if (vertex.level == highest) add_source(levels.back().sources, vertex.from);
    }
  }
  return levels;
}

FabricRails rails_of(const Fabric& fabric) {
  // The leaves of the adapters of each host.
  std::map<int, std::map<std::string, std::set<int>, ByNumbers>> hosts;
  for (const Cable& cable : fabric.cables()) {
    const bool a_is_host = level_at(fabric, cable.a) == 0;
    const int host = a_is_host ? cable.a : cable.b, leaf = a_is_host ? cable.b : cable.a;
    if (level_at(fabric, host) != 0 || level_at(fabric, leaf) != 1) continue;
    hosts[host][cable.adapter].insert(leaf);
  }
  FabricRails rails;
  std::map<int, int> rail_of;  // of each leaf
  bool apart = true;
  for (const auto& [host, adapters] : hosts) {
    rails.adapters = std::max(rails.adapters, static_cast<int>(adapters.size()));
    int index = 0;
    for (const auto& [adapter, leaves] : adapters) {
      for (const int leaf : leaves)
        apart = rail_of.emplace(leaf, index).first->second == index && apart;
      ++index;
    }
  }
  rails.are_rails = apart && rails.adapters > 1;
  if (!rails.are_rails) return rails;
  rails.leaves.resize(static_cast<std::size_t>(rails.adapters));
  for (const auto& [leaf, rail] : rail_of) ++rails.leaves[static_cast<std::size_t>(rail)];
  return rails;
}

std::string gigabits(double bytes_per_second) {
  return plain_number(bytes_per_second * 8 / 1e9) + " Gbit/s";
}

std::vector<int> hosts_by_name(const Fabric& fabric) {
  std::vector<int> hosts;
  for (std::size_t i = 0; i < fabric.vertices().size(); ++i) {
    if (!fabric.vertices()[i].is_switch) hosts.push_back(static_cast<int>(i));
  }
  std::ranges::sort(hosts, ByNumbers(), [&](int host) -> const std::string& {
    return fabric.vertices()[static_cast<std::size_t>(host)].name;
  });
  return hosts;
}

std::vector<int> blocks_of(const Fabric& fabric, int level) {
  const auto& vertices = fabric.vertices();
  std::vector<std::vector<int>> neighbours(vertices.size());
  const auto inside = [&](int vertex) {
    const int own = level_at(fabric, vertex);
    return 0 <= own && own <= level;
  };
  for (const Cable& cable : fabric.cables()) {
    if (!inside(cable.a) || !inside(cable.b)) continue;
    neighbours[static_cast<std::size_t>(cable.a)].push_back(cable.b);
    neighbours[static_cast<std::size_t>(cable.b)].push_back(cable.a);
  }
  std::vector<int> blocks(vertices.size(), -1);
  int count = 0;
  for (std::size_t first = 0; first < vertices.size(); ++first) {
    if (blocks[first] >= 0 || !inside(static_cast<int>(first))) continue;
    blocks[first] = count++;
    for (std::vector<std::size_t> left{first}; !left.empty();) {
      const std::size_t at = left.back();
      left.pop_back();
      for (const int next : neighbours[at]) {
        int& block = blocks[static_cast<std::size_t>(next)];
        if (block >= 0) continue;
        block = blocks[first];
        left.push_back(static_cast<std::size_t>(next));
      }
    }
  }
  return blocks;
}

Fabric part_of(const Fabric& fabric, const std::vector<int>& hosts) {
  const auto& vertices = fabric.vertices();
  std::vector<bool> kept(vertices.size(), false);
  for (const int host : hosts) kept[static_cast<std::size_t>(host)] = true;
  const int levels = static_cast<int>(levels_of(fabric).size());
  for (int level = 1; level < levels; ++level) {
    const std::vector<int> blocks = blocks_of(fabric, level);
    std::set<int> used;
    for (const int host : hosts) used.insert(blocks[static_cast<std::size_t>(host)]);
    for (std::size_t i = 0; i < vertices.size(); ++i) {
      if (vertices[i].level == level && used.contains(blocks[i])) kept[i] = true;
    }
    if (used.size() <= 1) break;
  }
  Fabric part(fabric.source());
  std::vector<int> copy_of(vertices.size(), -1);
  for (std::size_t i = 0; i < vertices.size(); ++i) {
    if (!kept[i]) continue;
    copy_of[i] =
        vertices[i].is_switch ? part.add_switch(vertices[i].name) : part.add_host(vertices[i].name);
    part.set_source(copy_of[i], vertices[i].from);
    part.set_level(copy_of[i], vertices[i].level);
  }
  for (Cable cable : fabric.cables()) {
    cable.a = copy_of[static_cast<std::size_t>(cable.a)];
    cable.b = copy_of[static_cast<std::size_t>(cable.b)];
    if (cable.a >= 0 && cable.b >= 0) part.keep_cable(std::move(cable));
  }
  return part;
}

}  // namespace trireme
