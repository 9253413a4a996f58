// What Slurm tells its tasks of the network.
#include <set>

#include <fmt/format.h>

#include "trireme/base/environment.h"
#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"
#include "trireme/comm/launcher.h"
#include "trireme/topology/fabric.h"

namespace trireme {
namespace {

constexpr std::size_t kMostParents = 256;  // switches of one level on the way to a node

std::vector<std::string> split(std::string_view text, char separator) {
  std::vector<std::string> parts;
  // A dot in brackets separates nothing.
  int depth = 0;
  std::string part;
  for (const char c : text) {
    if (c == '[') ++depth;
    if (c == ']') --depth;
    if (c == separator && depth == 0) {
      parts.push_back(std::move(part));
      part.clear();
    } else {
      part += c;
    }
  }
  parts.push_back(std::move(part));
  return parts;
}

}  // namespace

Fabric fabric_of_addresses(const std::vector<std::pair<std::string, std::string>>& addresses) {
  Fabric fabric(FabricSource::kSlurm);
  std::set<std::pair<int, int>> cabled;
  const auto connect = [&](int a, int b) {
    if (cabled.emplace(a, b).second) fabric.add_cable({a, b});
  };
  for (const auto& [address, pattern] : addresses) {
    const std::vector<std::string> parts = split(address, '.');
    const std::vector<std::string> kinds = split(pattern, '.');
    if (parts.size() != kinds.size() || kinds.back() != "node" || parts.back().empty()) {
      fabric.remark(fmt::format("the address '{}' does not fit its pattern '{}'", shown(address),
                                shown(pattern)));
      continue;
    }
    int below = fabric.add_host(parts.back());
    std::vector<int> children{below};
    for (std::size_t i = parts.size() - 1; i-- > 0;) {
      std::vector<int> parents;
      for (const std::string& name : expand_node_list(parts[i], kMostParents)) {
        parents.push_back(fabric.add_switch(name));
      }
      for (const int parent : parents) {
        for (const int child : children) connect(parent, child);
      }
      children = std::move(parents);
    }
  }
  fabric.find_levels();
  return fabric;
}

std::optional<std::pair<std::string, std::string>> own_address() {
  std::string address = environment("SLURM_TOPOLOGY_ADDR");
  if (match_nodes({split(address, '.').back()}, {node_name()}) != std::vector{0}) return {};
  return std::pair{std::move(address), environment("SLURM_TOPOLOGY_ADDR_PATTERN")};
}

}  // namespace trireme
