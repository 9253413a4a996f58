#include "trireme/train/memory_check.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/resident_memory.h"
#include "trireme/train/dry_run_input.h"

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

std::int64_t needed_on_node(const PeakMemory& memory, int tasks) {
  return mib_of((memory.total + kProcessBytes) * tasks);
}

void check_node(const PeakMemory& memory, int tasks, std::int64_t node_mib, double times,
                const FindRemedy& remedy) {
  const std::int64_t needed = needed_on_node(memory, tasks);
  if (static_cast<double>(needed) <= times * static_cast<double>(node_mib)) return;
  const auto fits = [=](const PeakMemory& other) {
    return needed_on_node(other, tasks) <= node_mib;
  };
  throw ConfigError(fmt::format(
      "memory: {} ranks a node need about {} MiB ({} each: {}, {} program), a node has {}: fewer "
      "tasks a node, or {}",
      tasks, needed, mib_of(memory.total + kProcessBytes), text_by_use(memory),
      mib_of(kProcessBytes), node_mib, remedy(fits)));
}

// The ranks of the node that has the least memory for each of its ranks.
struct RanksOfNode {
  int tasks = 0;
  std::int64_t node_mib = 0;
};

// Collective over the world.
RanksOfNode tightest_node(Runtime& runtime) {
  constexpr std::int64_t kTasks = std::int64_t{1} << 20;
  const int tasks = runtime.local_size();
  const std::int64_t each = mib_of(physical_memory_bytes()) / tasks;
  const auto least =
      runtime.world().all_reduce_host(std::int64_t{each * kTasks + tasks}, ReduceOp::kMin);
  const auto found = static_cast<int>(least % kTasks);
  return {.tasks = found, .node_mib = least / kTasks * found};
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

std::string usual_remedies(const FitsMemory& /*fits*/) {
  return std::string(kUsualRemedies);
}

void check_node_memory(const PeakMemory& memory, int tasks, std::int64_t node_mib,
                       const FindRemedy& remedy) {
  check_node(memory, tasks, node_mib, 1.0, remedy);
}

std::optional<std::string> gpu_shortage(const PeakMemory& memory, std::int64_t gpu_mib,
                                        const FindRemedy& remedy) {
  const auto fits = [=](const PeakMemory& other) { return mib_of(other.total) <= gpu_mib; };
  if (fits(memory)) return std::nullopt;
  return fmt::format("memory: a rank needs about {} MiB of its GPU ({}), which has {}: {}",
                     mib_of(memory.total), text_by_use(memory), gpu_mib, remedy(fits));
}

void check_gpu_memory(const PeakMemory& memory, std::int64_t gpu_mib, const FindRemedy& remedy) {
  if (const auto shortage = gpu_shortage(memory, gpu_mib, remedy)) throw ConfigError(*shortage);
}

void check_ranks_hold(Runtime& runtime, double bytes, const std::string& what) {
  const RanksOfNode node = tightest_node(runtime);
  const std::int64_t needed = mib_of(bytes * node.tasks);
  if (needed <= node.node_mib) return;
  throw ConfigError(fmt::format(
      "memory: {} needs about {} MiB on each node, which has {}: start it on more nodes", what,
      needed, node.node_mib));
}

std::vector<plan::DryRunResult> check_memory_here(plan::DryRunInput input, Runtime& runtime,
                                                  const ComputeDevice& device,
                                                  const FindRemedy& remedy) {
  constexpr double kDoubt = 2.0;
  const ops::Context& ctx = device.context;
  const bool on_gpu = ctx.device.kind != DeviceKind::kCpu;
  input.device = dry_device(device);
  const RanksOfNode node = on_gpu ? RanksOfNode() : tightest_node(runtime);
  std::vector<plan::DryRunResult> results;
  runtime.world().read_once([&] {
    results = plan::dry_run_largest(input);
    const PeakMemory memory = largest_of(results);
    if (on_gpu) {
      check_gpu_memory(memory, ctx.gpu_memory >> 20, remedy);
    } else {
      check_node(memory, node.tasks, node.node_mib, kDoubt, remedy);
    }
    return std::string();
  });
  return results;
}

}  // namespace trireme
