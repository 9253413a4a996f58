// Checks whether ranks fit into their memory, before anything is allocated.
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/comm/runtime.h"
#include "trireme/plan/dry_run.h"
#include "trireme/setup/compute_device.h"

namespace trireme {

// What a rank's tensors hold when they hold most, in bytes.
struct PeakMemory {
  std::array<double, kMemoryUses> by_use{};  // by MemoryUse
  double total = 0.0;
};

// Returns that of the rank that needs most.
PeakMemory largest_of(const std::vector<plan::DryRunResult>& results);

// What a rank needs in addition: program, MPI, buffers. Measured on one and two ranks: 54 to 65 MiB
// (perf/RESULTS.md, memory of a rank: resident memory minus tensors).
inline constexpr double kProcessBytes = 128.0 * 1048576.0;

// Returns whole MiB, rounded up, and at most 1e15, so that any number of bytes fits 64 bits.
std::int64_t mib_of(double bytes);

// Whether the ranks would fit if the largest held that.
using FitsMemory = std::function<bool(const PeakMemory&)>;
// The answers for so many ranks that share a node, and for a rank on its GPU.
FitsMemory fits_node(int tasks, std::int64_t node_mib);
FitsMemory fits_gpu(std::int64_t gpu_mib);
// The answer where no memory is known.
inline bool fits_anywhere(const PeakMemory& /*memory*/) {
  return true;
}
// Collective over the world. Returns the answer for these ranks, by the memory that their nodes,
// control groups or GPUs have, whatever is free of it.
FitsMemory fits_here(Runtime& runtime, const ComputeDevice& device);
// Returns what would need less memory, as in "a smaller batch.micro". Given what fits, it may
// search (nearest_setting.h).
using FindRemedy = std::function<std::string(const FitsMemory&)>;
inline constexpr std::string_view kUsualRemedies =
    "recompute.mode full, a smaller batch.micro, a higher shard.stage, more grid.tensor or more "
    "grid.pipeline";
std::string usual_remedies(const FitsMemory& fits);

// Returns what takes the memory and what would take less if a rank does not fit its GPU, and
// nothing if it fits.
std::optional<std::string> gpu_shortage(const PeakMemory& memory, std::int64_t gpu_mib,
                                        const FindRemedy& remedy);

// These throw ConfigError if the ranks do not fit. It says what takes the memory, and what would
// take less.
void check_node_memory(const PeakMemory& memory, int tasks, std::int64_t node_mib,
                       const FindRemedy& remedy = usual_remedies);
void check_gpu_memory(const PeakMemory& memory, std::int64_t gpu_mib,
                      const FindRemedy& remedy = usual_remedies);

// Returns a line where what NCCL is estimated to take leaves a rank's tensors too little of its
// GPU. An estimate refuses nothing.
std::optional<std::string> nccl_shortage(const std::vector<plan::DryRunResult>& results,
                                         std::int64_t gpu_mib);

// Collective over the world. Throws the same ConfigError on all ranks if each of them is to hold
// `bytes` and the ranks of some node or control group have less memory than that. `what` needs it,
// as in "importing the weights".
void check_ranks_hold(Runtime& runtime, double bytes, const std::string& what);

// Collective over the world. Rank 0 dry-runs the ranks that need most, on such a device. Returns
// the results there, and nothing on other ranks. Throws the same ConfigError on all ranks where the
// ranks of some node or control group, or a rank on its GPU, do not fit. Of several ranks it
// refuses only what needs more than twice their memory, since they need less than the largest one,
// each at another time, and an impossible run needs far more. A run that passes but needs more than
// is free ends with status 71 when it allocates; where it may exceed a control group's limit, by
// which the system kills, rank 0 prints a line before that.
std::vector<plan::DryRunResult> check_memory_here(plan::DryRunInput input, Runtime& runtime,
                                                  const ComputeDevice& device,
                                                  const FindRemedy& remedy = usual_remedies);

}  // namespace trireme
