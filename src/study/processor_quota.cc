// How much processor time a node may take.
#include <algorithm>
#include <fstream>
#include <limits>
#include <map>

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

std::optional<double> least_quota(const fs::path& mount, const fs::path& group) {
  std::optional<double> least;
  for (fs::path part = group;; part = part.parent_path()) {
    if (const auto quota = quota_of(mount / part)) {
      least = std::min(*quota, least.value_or(*quota));
    }
    if (part.empty() || part == part.parent_path()) return least;
  }
}

}  // namespace

std::optional<double> processor_quota(const fs::path& root) {
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
    const fs::path group = line.substr(second + 2);
    for (const fs::path& mount : {all ? mounts : mounts / kinds, all ? mounts : mounts / "cpu"}) {
      if (const auto quota = least_quota(mount, group)) return quota;
    }
  }
  return {};
}

double processors_of(std::span<const NodeProcessors> nodes) {
  struct Machine {
    double online = 0.0, usable = 0.0;
  };
  std::map<std::string, Machine> machines;
  for (const NodeProcessors& node : nodes) {
    if (!(node.online > 0.0) || !(node.usable > 0.0)) return 0.0;
    Machine& machine = machines[node.machine];
    machine.online = std::max(machine.online, node.online);
    machine.usable += node.usable;
  }
  double all = 0.0;
  for (const auto& [name, machine] : machines) all += std::min(machine.online, machine.usable);
  return all;
}

}  // namespace trireme::scaling
