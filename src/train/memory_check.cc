#include "trireme/train/memory_check.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/resident_memory.h"

namespace trireme {
namespace {

std::string text_by_use(const PeakMemory& memory) {
  std::string text;
  for (std::size_t use = 0; use < kMemoryUses; ++use) {
    if (memory.by_use[use] == 0.0) continue;
    text += fmt::format("{}{} {}", text.empty() ? "" : ", ", mib_of(memory.by_use[use]),
                        name_of(static_cast<MemoryUse>(use)));
  }
  return text;
}

void check_node(const PeakMemory& memory, int tasks, std::int64_t node_mib, double times) {
  const double rank = memory.total + kProcessBytes;
  const std::int64_t needed = mib_of(rank * tasks);
  if (static_cast<double>(needed) <= times * static_cast<double>(node_mib)) return;
  throw ConfigError(fmt::format(
      "memory: {} ranks a node need about {} MiB ({} each: {}, {} program), a node has {}: fewer "
      "tasks a node, recompute.mode full, a smaller batch.micro, or more grid.tensor or "
      "grid.pipeline",
      tasks, needed, mib_of(rank), text_by_use(memory), mib_of(kProcessBytes), node_mib));
}

}  // namespace

PeakMemory largest_of(const std::vector<plan::DryRunResult>& results) {
  TRIREME_CHECK(!results.empty(), "dry runs of some ranks");
  const MemoryStats& most =
      std::ranges::max_element(results, {}, [](const plan::DryRunResult& result) {
        return result.memory.total_peak;
      })->memory;
  PeakMemory peak{.by_use = {}, .total = static_cast<double>(most.total_peak)};
  std::ranges::transform(most.at_peak, peak.by_use.begin(),
                         [](std::size_t bytes) { return static_cast<double>(bytes); });
  return peak;
}

std::int64_t mib_of(double bytes) {
  constexpr double kMib = 1048576.0, kMost = 1e15;
  return static_cast<std::int64_t>(std::min(std::ceil(bytes / kMib), kMost));
}

void check_node_memory(const PeakMemory& memory, int tasks, std::int64_t node_mib) {
  check_node(memory, tasks, node_mib, 1.0);
}

void check_gpu_memory(const PeakMemory& memory, std::int64_t gpu_mib) {
  if (mib_of(memory.total) <= gpu_mib) return;
  throw ConfigError(fmt::format(
      "memory: a rank needs about {} MiB of its GPU ({}), which has {}: recompute.mode full, a "
      "smaller batch.micro, or more grid.tensor or grid.pipeline",
      mib_of(memory.total), text_by_use(memory), gpu_mib));
}

std::vector<plan::DryRunResult> check_memory_here(plan::DryRunInput input, Runtime& runtime,
                                                  const ComputeDevice& device) {
  constexpr double kDoubt = 2.0;
  const ops::Context& ctx = device.context;
  const bool on_gpu = ctx.device.kind != DeviceKind::kCpu;
  input.gpu_memory = ctx.gpu_memory;
  input.nccl = on_gpu && device.carrier != "mpi";
  if (!on_gpu) input.threads = ctx.threads;
  std::vector<plan::DryRunResult> results;
  PeakMemory memory;
  const std::string told = runtime.world().read_once([&] {
    results = plan::dry_run_largest(input);
    memory = largest_of(results);
    return std::string(reinterpret_cast<const char*>(&memory), sizeof memory);
  });
  TRIREME_CHECK(told.size() == sizeof memory, "the memory of the largest rank");
  std::memcpy(&memory, told.data(), sizeof memory);
  if (on_gpu) {
    const auto bytes = static_cast<double>(ctx.cuda->properties(ctx.device.index).memory);
    check_gpu_memory(memory, mib_of(bytes));
  } else {
    check_node(memory, runtime.local_size(), mib_of(physical_memory_bytes()), kDoubt);
  }
  return results;
}

}  // namespace trireme
