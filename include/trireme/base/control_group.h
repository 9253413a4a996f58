// Limits of the control groups (version 1 and 2) that hold this process: what Slurm's cgroup
// plugins, containers and systemd set for a job, a step or a service.
#pragma once

#include <cstddef>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

enum class GroupResource { kProcessors, kMemory };

// What one group grants to all of its processes together.
struct GroupLimit {
  std::string group;      // the same wherever it is seen from on a machine; without spaces
  double amount = 0.0;    // processors, of which 0.5 is half of the time of one; or bytes
  std::string file = {};  // that holds it, as in /sys/fs/cgroup/slurm/job_7/memory.max
};

// Returns the limits of this process's group and of those above it, which hold its own; none
// without such limits. `root` is "/" except in tests.
std::vector<GroupLimit> group_limits(GroupResource resource,
                                     const std::filesystem::path& root = "/");
// Returns the least of them, which is what this process has at most; nullopt without any.
std::optional<GroupLimit> least_limit(const std::vector<GroupLimit>& limits);

// What a process has of the groups that it shares with others.
struct GroupShare {
  double amount = 0.0;  // of each process
  int processes = 1;    // that share the group
  GroupLimit limit;
};
// Returns the least share of process `own` among processes of one machine, whose limits are given.
// All of a group have the same part of it. nullopt without any limit.
std::optional<GroupShare> least_share(const std::vector<std::vector<GroupLimit>>& of_processes,
                                      std::size_t own);

}  // namespace trireme
