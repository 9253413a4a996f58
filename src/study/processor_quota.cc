// How much processor time the nodes of a run may take.
#include <algorithm>
#include <functional>
#include <map>

#include "trireme/study/conditions.h"

namespace trireme::scaling {

double processors_of(std::span<const NodeProcessors> nodes) {
  struct Machine {
    double online = 0.0, usable = 0.0;
  };
  struct Group {
    double quota = 0.0;
    std::size_t depth = 0;  // how many groups with a quota hold it
    std::vector<std::size_t> nodes = {};
  };
  std::map<std::string, Machine> machines;
  std::map<std::pair<std::string, std::string>, Group> groups;
  std::vector<double> usable;
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    const NodeProcessors& node = nodes[i];
    if (!(node.online > 0.0) || !(node.usable > 0.0)) return 0.0;
    // Machines without a name cannot be told apart.
    if (node.machine.empty() && nodes.size() > 1) return 0.0;
    usable.push_back(node.usable);
    for (std::size_t at = 0; at < node.quotas.size(); ++at) {
      Group& group = groups[{node.machine, node.quotas[at].group}];
      group.quota = node.quotas[at].amount;
      group.depth = node.quotas.size() - 1 - at;
      group.nodes.push_back(i);
    }
  }
  // Nodes share what their group has. The groups that hold others come after them.
  std::vector<Group> inner_first;
  for (const auto& [name, group] : groups) inner_first.push_back(group);
  std::ranges::stable_sort(inner_first, std::greater<>(), &Group::depth);
  for (const Group& group : inner_first) {
    double sum = 0.0;
    for (const std::size_t i : group.nodes) sum += usable[i];
    if (sum <= group.quota) continue;
    for (const std::size_t i : group.nodes) usable[i] *= group.quota / sum;
  }
  for (std::size_t i = 0; i < nodes.size(); ++i) {
    Machine& machine = machines[nodes[i].machine];
    machine.online = std::max(machine.online, nodes[i].online);
    machine.usable += usable[i];
  }
  double all = 0.0;
  for (const auto& [name, machine] : machines) all += std::min(machine.online, machine.usable);
  return all;
}

}  // namespace trireme::scaling
