#include "comm/grid/core_sharing.h"

#include <algorithm>
#include <cstdlib>

#include <sched.h>

namespace trireme {
namespace {

// Returns 0 if the variable is not set to a positive number.
int positive_from_environment(const char* name) {
  const char* text = std::getenv(name);
  return text == nullptr ? 0 : std::max(0, std::atoi(text));
}

}  // namespace

CpuMask own_cpu_mask() {
  static_assert(kMaxCpus <= CPU_SETSIZE);
  cpu_set_t set;
  CPU_ZERO(&set);
  CpuMask mask;
  if (sched_getaffinity(0, sizeof set, &set) != 0) return mask;  // there are more processors
  for (std::size_t cpu = 0; cpu < kMaxCpus; ++cpu) mask[cpu] = CPU_ISSET(cpu, &set);
  return mask;
}

std::vector<int> share_cores(const std::vector<CpuMask>& masks) {
  std::vector<int> holders(kMaxCpus, 0);
  for (const CpuMask& mask : masks) {
    for (std::size_t cpu = 0; cpu < kMaxCpus; ++cpu) holders[cpu] += mask[cpu] ? 1 : 0;
  }
  std::vector<int> result;
  for (const CpuMask& mask : masks) {
    double share = 0;
    for (std::size_t cpu = 0; cpu < kMaxCpus; ++cpu) {
      if (mask[cpu]) share += 1.0 / holders[cpu];
    }
    result.push_back(std::max(1, static_cast<int>(share + 1e-6)));  // three thirds make one core
  }
  return result;
}

int limit_by_scheduler(int cores, int local_size) {
  if (const int per_task = positive_from_environment("SLURM_CPUS_PER_TASK")) {
    return std::min(cores, per_task);
  }
  if (const int on_node = positive_from_environment("SLURM_CPUS_ON_NODE")) {
    return std::clamp(on_node / local_size, 1, cores);
  }
  return cores;
}

}  // namespace trireme
