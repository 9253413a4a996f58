#include "trireme/base/control_group.h"

#include <algorithm>
#include <charconv>
#include <sstream>

#include <fmt/format.h>
#include <sys/stat.h>

#include "trireme/base/kernel_files.h"
#include "trireme/base/text.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// How the kernel shows a resource.
struct Controller {
  std::string name;  // of version 1
  std::string file, old_file;
};

Controller controller_of(GroupResource resource) {
  if (resource == GroupResource::kMemory) return {"memory", "memory.max", "memory.limit_in_bytes"};
  return {"cpu", "cpu.max", "cpu.cfs_quota_us"};
}

// Returns the number that a text begins with; 0 for a word that is none ("max") and for "".
double leading_number(std::string_view text) {
  double number = 0.0;
  std::from_chars(text.data(), text.data() + text.size(), number);
  return number;
}

// The limit in one file of a group.
std::optional<double> amount_in(const fs::path& file, GroupResource resource) {
  constexpr double kUnlimited = 1e18;  // version 1 writes some 2^63 where there is no limit
  const std::string line = first_line_of(file);
  const double first = leading_number(line);
  if (!(first > 0.0)) return {};
  if (resource == GroupResource::kMemory) {
    return first < kUnlimited ? std::optional(first) : std::nullopt;
  }
  // Version 2 writes the quota and its period into one file.
  const std::size_t space = line.find(' ');
  const double period =
      space == std::string::npos
          ? leading_number(first_line_of(file.parent_path() / "cpu.cfs_period_us"))
          : leading_number(std::string_view(line).substr(space + 1));
  return period > 0.0 ? std::optional(first / period) : std::nullopt;
}

// Paths of a group differ between namespaces and mounts; what the kernel has of it is one.
std::string identity_of(const fs::path& group) {
  struct ::stat found = {};
  if (::stat(group.c_str(), &found) != 0) return group.string();
  return fmt::format("{}:{}", found.st_dev, found.st_ino);
}

std::vector<GroupLimit> limits_of(const fs::path& mount, const fs::path& group,
                                  GroupResource resource) {
  const Controller controller = controller_of(resource);
  std::vector<GroupLimit> limits;
  for (fs::path part = group;; part = part.parent_path()) {
    const fs::path folder = part.empty() ? mount : mount / part;
    for (const std::string& file : {controller.file, controller.old_file}) {
      const auto amount = amount_in(folder / file, resource);
      if (!amount) continue;
      limits.push_back({identity_of(folder), *amount, (folder / file).string()});
      break;
    }
    if (part.empty() || part == part.parent_path()) return limits;
  }
}

// The group that a mount shows at its top, by /proc/self/mountinfo: in a container without a
// namespace of groups it is the container's. "/" where that is not known.
fs::path top_of(const fs::path& root, const fs::path& mount) {
  std::error_code none;
  const fs::path place =
      "/" / fs::weakly_canonical(mount, none).lexically_relative(fs::weakly_canonical(root, none));
  std::istringstream mounts(kernel_text(root / "proc/self/mountinfo"));
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

std::vector<GroupLimit> group_limits(GroupResource resource, const fs::path& root) {
  const std::string wanted = controller_of(resource).name;
  std::istringstream groups(kernel_text(root / "proc/self/cgroup"));
  const fs::path mounts = root / "sys/fs/cgroup";
  for (std::string line; std::getline(groups, line);) {
    // A line of version 2 is "0::/GROUP", one of version 1 "4:cpu,cpuacct:/GROUP".
    const std::size_t first = line.find(':'), second = line.find(":/", first + 1);
    if (first == line.npos || second == line.npos) continue;
    const std::string kinds = line.substr(first + 1, second - first - 1);
    const std::vector<std::string> names = split_list(kinds);
    const bool all = kinds.empty();
    if (!all && std::find(names.begin(), names.end(), wanted) == names.end()) continue;
    const fs::path group = line.substr(second + 1);
    for (const fs::path& mount :
         {all ? mounts : mounts / kinds, all ? mounts / "unified" : mounts / wanted}) {
      auto limits = limits_of(mount, below(top_of(root, mount), group), resource);
      if (!limits.empty()) return limits;
    }
  }
  return {};
}

std::optional<GroupLimit> least_limit(const std::vector<GroupLimit>& limits) {
  if (limits.empty()) return {};
  return *std::ranges::min_element(limits, {}, &GroupLimit::amount);
}

std::optional<GroupShare> least_share(const std::vector<std::vector<GroupLimit>>& of_processes,
                                      std::size_t own) {
  std::optional<GroupShare> least;
  for (const GroupLimit& limit : of_processes[own]) {
    const auto holds = [&](const std::vector<GroupLimit>& limits) {
      return std::ranges::find(limits, limit.group, &GroupLimit::group) != limits.end();
    };
    const auto processes = static_cast<int>(std::ranges::count_if(of_processes, holds));
    const double amount = limit.amount / processes;
    if (!least || amount < least->amount) least = GroupShare{amount, processes, limit};
  }
  return least;
}

}  // namespace trireme
