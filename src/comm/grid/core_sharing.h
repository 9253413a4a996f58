// How the ranks of a node share its cores.
#pragma once

#include <bitset>
#include <cstddef>
#include <vector>

namespace trireme {

inline constexpr std::size_t kMaxCpus = 1024;
using CpuMask = std::bitset<kMaxCpus>;

// The processors that this process may run on.
CpuMask own_cpu_mask();

// Returns the number of cores that each rank of a node may use, given the masks of all. A processor
// that several masks contain is shared evenly among them. At least 1 each.
std::vector<int> share_cores(const std::vector<CpuMask>& masks);

// Returns the number of cores that the job scheduler grants this rank (SLURM_CPUS_PER_TASK, or else
// its share of SLURM_CPUS_ON_NODE among `local_size` ranks), but not more than `cores`; `cores` if
// the scheduler says nothing. At least 1.
int limit_by_scheduler(int cores, int local_size);

}  // namespace trireme
