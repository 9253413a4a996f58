// How much processor time a node may take.
#include <algorithm>
#include <fstream>
#include <functional>
#include <map>
#include <sstream>

#include <fmt/format.h>
#include <sys/stat.h>

#include "trireme/base/text.h"
#include "trireme/study/conditions.h"

namespace trireme::scaling {
namespace {

namespace fs = std::filesystem;

// The first two numbers of a file; a word that is none ("max") and a missing file give nothing.
std::optional<double> quotient_in(const fs::path& quota_file, const fs::path& period_file) {
  std::ifstream quotas(quota_file);
  double quota = 0.0, period = 0.0;
  if (!(quotas >> quota)) return {};
  if (quota_file == period_file) {
    quotas >> period;
  } else {
    std::ifstream(period_file) >> period;
  }
  if (!(quota > 0.0) || !(period > 0.0)) return {};
  return quota / period;
}

// The limit of one control group, in version 2 or in version 1 of them.
std::optional<double> quota_of(const fs::path& group) {
  const auto now = quotient_in(group / "cpu.max", group / "cpu.max");
  return now ? now : quotient_in(group / "cpu.cfs_quota_us", group / "cpu.cfs_period_us");
}

// Paths of a group differ between namespaces and mounts; what the kernel has of it is one.
std::string identity_of(const fs::path& group) {
  struct ::stat found = {};
  if (::stat(group.c_str(), &found) != 0) return group.string();
  return fmt::format("{}:{}", found.st_dev, found.st_ino);
}

std::vector<GroupQuota> quotas_of(const fs::path& mount, const fs::path& group) {
  std::vector<GroupQuota> quotas;
  for (fs::path part = group;; part = part.parent_path()) {
    if (const auto quota = quota_of(mount / part)) {
      quotas.push_back({identity_of(part.empty() ? mount : mount / part), *quota});
    }
    if (part.empty() || part == part.parent_path()) return quotas;
  }
}

// The group that a mount shows at its top, by /proc/self/mountinfo: in a container without a
// namespace of groups it is the container's. "/" where that is not known.
fs::path top_of(const fs::path& root, const fs::path& mount) {
  std::error_code none;
  const fs::path place =
      "/" / fs::weakly_canonical(mount, none).lexically_relative(fs::weakly_canonical(root, none));
  std::ifstream mounts(root / "proc/self/mountinfo");
  for (std::string line; std::getline(mounts, line);) {
    std::istringstream fields(line);
    std::string id, parent, device, top, at;
    if (fields >> id >> parent >> device >> top >> at && at == place) return top;
  }
  return "/";
}

// The path of a group, which begins with "/", below a mount. A group that the mount does not show
// keeps its own.
fs::path below(const fs::path& top, const fs::path& group) {
  const fs::path rest = group.lexically_relative(top);
  if (rest == ".") return {};
  return rest.empty() || *rest.begin() == ".." ? group.relative_path() : rest;
}

}  // namespace

std::vector<GroupQuota> processor_quotas(const fs::path& root) {
  std::ifstream groups(root / "proc/self/cgroup");
  const fs::path mounts = root / "sys/fs/cgroup";
  for (std::string line; std::getline(groups, line);) {
    // Of version 2 "0::/GROUP", of version 1 "4:cpu,cpuacct:/GROUP".
    const std::size_t first = line.find(':'), second = line.find(":/", first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string kinds = line.substr(first + 1, second - first - 1);
    const std::vector<std::string> names = split_list(kinds);
    const bool all = kinds.empty();
    if (!all && std::find(names.begin(), names.end(), "cpu") == names.end()) continue;
    const fs::path group = line.substr(second + 1);
    for (const fs::path& mount : {all ? mounts : mounts / kinds, all ? mounts : mounts / "cpu"}) {
      auto quotas = quotas_of(mount, below(top_of(root, mount), group));
      if (!quotas.empty()) return quotas;
    }
  }
  return {};
}

std::optional<double> processor_quota(const fs::path& root) {
  const std::vector<GroupQuota> quotas = processor_quotas(root);
  if (quotas.empty()) return {};
  return std::ranges::min_element(quotas, {}, &GroupQuota::processors)->processors;
}

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
      group.quota = node.quotas[at].processors;
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
