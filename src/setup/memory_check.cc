#include "trireme/setup/memory_check.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <sstream>

#include <fmt/format.h>

#include "trireme/base/control_group.h"
#include "trireme/base/error.h"
#include "trireme/base/kernel_files.h"
#include "trireme/base/log.h"
#include "trireme/base/resident_memory.h"
#include "trireme/base/text.h"
#include "trireme/comm/gather_lines.h"
#include "trireme/setup/dry_run_input.h"

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

// Ranks that share a node's memory, or what a control group grants to them of it.
struct SharedMemory {
  int tasks = 0;
  std::int64_t mib = 0;
  std::string limit = {};  // the file that has the control group's; empty: it is the node's
};

std::string text_of_shortage(const PeakMemory& memory, const SharedMemory& shared,
                             const FindRemedy& remedy) {
  const FitsMemory fits = fits_node(shared.tasks, shared.mib);
  const std::string each =
      fmt::format("about {} MiB ({} each: {}, {} program)", needed_on_node(memory, shared.tasks),
                  mib_of(memory.total + kProcessBytes), text_by_use(memory), mib_of(kProcessBytes));
  if (shared.limit.empty()) {
    return fmt::format("memory: {} ranks a node need {}, a node has {}: fewer tasks a node, or {}",
                       shared.tasks, each, shared.mib, remedy(fits));
  }
  return fmt::format(
      "memory: {} in a control group need {}, its limit is {} ({}): ask for more (Slurm's --mem, a "
      "container's --memory), take fewer tasks a node, or {}",
      counted(shared.tasks, "rank"), each, shared.mib, shared.limit, remedy(fits));
}

// Whether the ranks cannot run. They need less than the largest of them, each at another time; one
// rank alone needs what it needs, and the system ends who exceeds a control group's limit.
bool is_hopeless(const PeakMemory& memory, const SharedMemory& shared) {
  constexpr double kDoubt = 2.0;
  if (shared.tasks == 1 && !shared.limit.empty()) return mib_of(memory.total) > shared.mib;
  return static_cast<double>(needed_on_node(memory, shared.tasks)) >
         kDoubt * static_cast<double>(shared.mib);
}

// What a rank knows of its memory, as lines for the others and back.
struct MemoryOfRank {
  std::string machine;
  std::int64_t mib = 0;  // of the node
  int tasks = 1;         // on the node
  std::vector<GroupLimit> limits = {};

  std::vector<std::string> lines() const {
    std::vector<std::string> lines{machine, fmt::format("{} {}", mib, tasks)};
    for (const GroupLimit& limit : limits) {
      lines.push_back(fmt::format("{} {:.0f} {}", limit.group, limit.amount, limit.file));
    }
    return lines;
  }
  explicit MemoryOfRank(const std::vector<std::string>& lines) : machine(lines.at(0)) {
    std::istringstream(lines.at(1)) >> mib >> tasks;
    for (std::size_t i = 2; i < lines.size(); ++i) {
      GroupLimit limit;
      std::istringstream words(lines[i]);
      words >> limit.group >> limit.amount >> std::ws;
      std::getline(words, limit.file);
      limits.push_back(std::move(limit));
    }
  }
  MemoryOfRank() = default;
};

// Collective over the world. Returns what has the least memory for each of its ranks.
SharedMemory tightest_memory(Runtime& runtime) {
  MemoryOfRank own;
  own.machine = first_line_of("/proc/sys/kernel/random/boot_id");
  if (own.machine.empty()) own.machine = runtime.host();
  own.mib = mib_of(physical_memory_bytes());
  own.tasks = runtime.local_size();
  own.limits = group_limits(GroupResource::kMemory);
  std::map<std::string, std::vector<MemoryOfRank>> machines;
  for (const auto& lines : gather_lines(runtime.world(), own.lines())) {
    MemoryOfRank rank(lines);
    machines[rank.machine].push_back(std::move(rank));
  }
  SharedMemory tightest;
  const auto take = [&](const SharedMemory& other) {
    if (tightest.tasks == 0 || other.mib * tightest.tasks < tightest.mib * other.tasks) {
      tightest = other;
    }
  };
  for (const auto& [machine, ranks] : machines) {
    std::vector<std::vector<GroupLimit>> limits;
    for (const MemoryOfRank& rank : ranks) limits.push_back(rank.limits);
    for (std::size_t i = 0; i < ranks.size(); ++i) {
      take({ranks[i].tasks, ranks[i].mib});
      if (const auto share = least_share(limits, i)) {
        take({share->processes, mib_of(share->limit.amount), share->limit.file});
      }
    }
  }
  return tightest;
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

FitsMemory fits_node(int tasks, std::int64_t node_mib) {
  return [=](const PeakMemory& memory) { return needed_on_node(memory, tasks) <= node_mib; };
}

FitsMemory fits_gpu(std::int64_t gpu_mib) {
  return [=](const PeakMemory& memory) { return mib_of(memory.total) <= gpu_mib; };
}

FitsMemory fits_here(Runtime& runtime, const ComputeDevice& device) {
  const ops::Context& ctx = device.context;
  if (ctx.device.kind != DeviceKind::kCpu) return fits_gpu(ctx.gpu_memory >> 20);
  const SharedMemory shared = tightest_memory(runtime);
  return fits_node(shared.tasks, shared.mib);
}

std::string usual_remedies(const FitsMemory& /*fits*/) {
  return std::string(kUsualRemedies);
}

void check_node_memory(const PeakMemory& memory, int tasks, std::int64_t node_mib,
                       const FindRemedy& remedy) {
  if (needed_on_node(memory, tasks) <= node_mib) return;
  throw ConfigError(text_of_shortage(memory, {tasks, node_mib}, remedy));
}

std::optional<std::string> gpu_shortage(const PeakMemory& memory, std::int64_t gpu_mib,
                                        const FindRemedy& remedy) {
  const FitsMemory fits = fits_gpu(gpu_mib);
  if (fits(memory)) return std::nullopt;
  return fmt::format("memory: a rank needs about {} MiB of its GPU ({}), which has {}: {}",
                     mib_of(memory.total), text_by_use(memory), gpu_mib, remedy(fits));
}

std::optional<std::string> nccl_shortage(const std::vector<plan::DryRunResult>& results,
                                         std::int64_t gpu_mib) {
  const auto needs = [](const plan::DryRunResult& result) {
    return static_cast<double>(result.memory.total_peak) + static_cast<double>(result.nccl.bytes);
  };
  const plan::DryRunResult& most = *std::ranges::max_element(results, {}, needs);
  if (mib_of(needs(most)) <= gpu_mib) return std::nullopt;
  return fmt::format(
      "memory: a rank's tensors take {} MiB of its GPU, which has {}, and {}: it may run out",
      mib_of(static_cast<double>(most.memory.total_peak)), gpu_mib, words_on(most.nccl));
}

void check_gpu_memory(const PeakMemory& memory, std::int64_t gpu_mib, const FindRemedy& remedy) {
  if (const auto shortage = gpu_shortage(memory, gpu_mib, remedy)) throw ConfigError(*shortage);
}

void check_ranks_hold(Runtime& runtime, double bytes, const std::string& what) {
  const SharedMemory shared = tightest_memory(runtime);
  const std::int64_t needed = mib_of(bytes * shared.tasks);
  if (needed <= shared.mib) return;
  if (shared.limit.empty()) {
    throw ConfigError(fmt::format(
        "memory: {} needs about {} MiB on each node, which has {}: start it on more nodes", what,
        needed, shared.mib));
  }
  throw ConfigError(fmt::format(
      "memory: {} needs about {} MiB in each control group, whose limit is {} ({}): ask for more "
      "(Slurm's --mem, a container's --memory), or start it on more nodes",
      what, needed, shared.mib, shared.limit));
}

std::vector<plan::DryRunResult> check_memory_here(plan::DryRunInput input, Runtime& runtime,
                                                  const ComputeDevice& device,
                                                  const FindRemedy& remedy) {
  const ops::Context& ctx = device.context;
  const bool on_gpu = ctx.device.kind != DeviceKind::kCpu;
  plan::NcclSetting nccl = input.device.nccl_setting;
  nccl.ranks_of_node = runtime.local_size();
  input.device = dry_device(device);
  input.device.nccl_setting = nccl;
  const SharedMemory shared = on_gpu ? SharedMemory() : tightest_memory(runtime);
  std::vector<plan::DryRunResult> results;
  runtime.world().read_once([&] {
    results = plan::dry_run_largest(input);
    const PeakMemory memory = largest_of(results);
    if (on_gpu) {
      check_gpu_memory(memory, ctx.gpu_memory >> 20, remedy);
      const auto warning = nccl_shortage(results, ctx.gpu_memory >> 20);
      if (warning) report_line(*warning);
    } else if (is_hopeless(memory, shared)) {
      throw ConfigError(text_of_shortage(memory, shared, remedy));
    } else if (!shared.limit.empty() && needed_on_node(memory, shared.tasks) > shared.mib) {
      report_line(text_of_shortage(memory, shared, remedy) +
                  "; the system may end ranks without a line");
    }
    return std::string();
  });
  return results;
}

}  // namespace trireme
