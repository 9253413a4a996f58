#include "cli/cluster_limits.h"

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/log.h"

#include "cli/subprocess.h"

namespace trireme::cli {
namespace {

// Reads lines such as "batch*|6|64|250000". The star marks the default partition, and a "+" says
// that some nodes have more.
std::vector<NodeGroup> read_groups(const std::string& text) {
  std::vector<NodeGroup> groups;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    std::istringstream fields(line);
    std::string partition, nodes, cpus, memory;
    std::getline(fields, partition, '|');
    std::getline(fields, nodes, '|');
    std::getline(fields, cpus, '|');
    if (!std::getline(fields, memory)) continue;
    groups.push_back({.partition = partition,
                      .nodes = std::atoi(nodes.c_str()),
                      .cpus = std::atoi(cpus.c_str()),
                      .memory = std::atoll(memory.c_str())});
  }
  return groups;
}

// Keeps only the groups of the default partition, if there is one.
void keep_default(std::vector<NodeGroup>& groups) {
  const auto is_default = [](const NodeGroup& group) { return group.partition.ends_with('*'); };
  if (std::none_of(groups.begin(), groups.end(), is_default)) return;
  std::erase_if(groups, [&](const NodeGroup& group) { return !is_default(group); });
}

}  // namespace

ClusterLimits cluster_limits(const Site& site) {
  ClusterLimits limits{.node_memory = site.memory,
                       .gpu_memory = site.gpu_memory,
                       .program_of_module = loads_program(site),
                       .groups = {}};
  std::vector<std::string> command{"sinfo", "-h", "-e", "-o", "%P|%D|%c|%m"};
  if (!site.partition.empty()) command.push_back("--partition=" + site.partition);
  constexpr int kPatience = 10;  // seconds; without its controller sinfo may stand for ever
  const auto done = run_program(command, "", {.seconds = kPatience});
  if (done && done->late) {
    report_line(fmt::format(
        "sinfo said nothing for {} s: what the partition and its nodes have is not checked",
        kPatience));
  }
  if (!done || done->status != 0) return limits;
  limits.groups = read_groups(done->output);
  if (site.partition.empty()) keep_default(limits.groups);
  for (NodeGroup& group : limits.groups) {
    if (group.partition.ends_with('*')) group.partition.pop_back();
    if (!site.memory) {
      limits.node_memory = std::min(group.memory, limits.node_memory.value_or(group.memory));
    }
  }
  return limits;
}

}  // namespace trireme::cli
