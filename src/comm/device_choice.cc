#include "trireme/comm/device_choice.h"

#include <algorithm>
#include <charconv>
#include <cstdlib>
#include <map>
#include <numeric>
#include <set>
#include <sstream>

#include <fmt/format.h>

#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/kernel_files.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"

#include "comm/grid/core_sharing.h"

namespace trireme {
namespace {

std::string no_gpu_message(std::size_t rank, const GpuEnvironment& given) {
  const VisibleDevices visible = read_visible_devices(given.cuda_visible_devices);
  if (visible.kind != VisibleDevices::Kind::kAll && given.slurm_gpus_on_node.empty()) {
    return fmt::format("local rank {} sees no GPU: {}: unset it, or name one", rank,
                       words_on(visible));
  }
  if (!given.slurm_job.empty()) {
    return fmt::format(
        "local rank {} sees no GPU: ask Slurm for the node's GPUs with --gpus-per-node", rank);
  }
  return fmt::format("local rank {} sees no GPU: `trireme doctor` says why", rank);
}

std::string too_few_message(std::size_t ranks, std::size_t gpus, const GpuEnvironment& given) {
  const std::string head =
      fmt::format("{} ranks on this node see {} GPU{}, and each needs its own: ", ranks, gpus,
                  gpus == 1 ? "" : "s");
  const VisibleDevices visible = read_visible_devices(given.cuda_visible_devices);
  if (visible.kind == VisibleDevices::Kind::kMig) {
    return head + fmt::format(
                      "{}: give each rank an instance of its own (Slurm: --gpus-per-task=1), "
                      "or let them share with --comm.backend mpi",
                      words_on(visible));
  }
  const auto on_node = static_cast<std::size_t>(std::atoi(given.slurm_gpus_on_node.c_str()));
  if (on_node >= ranks && on_node > gpus) {
    return head + fmt::format("the job has {} here, so leave out what hides them{}", on_node,
                              given.slurm_gpu_bind.empty()
                                  ? std::string()
                                  : fmt::format(" (--gpu-bind={})", given.slurm_gpu_bind));
  }
  return head + fmt::format(
                    "ask Slurm for --gpus-per-node={}, start {} here, or let them share with "
                    "--comm.backend mpi",
                    ranks, gpus);
}

}  // namespace

GpuEnvironment gpu_environment() {
  GpuEnvironment found;
  if (const char* visible = std::getenv("CUDA_VISIBLE_DEVICES")) {
    found.cuda_visible_devices = visible;
  }
  found.slurm_job = environment("SLURM_JOB_ID");
  found.slurm_gpus_on_node = environment("SLURM_GPUS_ON_NODE");
  found.slurm_gpu_bind = environment("SLURM_GPU_BIND");
  found.nccl_launch_order = environment("NCCL_LAUNCH_ORDER_IMPLICIT");
  return found;
}

VisibleDevices read_visible_devices(const std::optional<std::string>& text) {
  using enum VisibleDevices::Kind;
  VisibleDevices found;
  if (!text) return found;
  found.text = *text;
  found.kind = kNone;
  const auto kind_of = [](const std::string& entry) {
    if (entry.starts_with("GPU-")) return kUuids;
    if (entry.starts_with("MIG-")) return kMig;
    const bool digits =
        !entry.empty() && std::ranges::all_of(entry, [](char c) { return c >= '0' && c <= '9'; });
    return digits ? kIndices : kNone;
  };
  for (std::string entry : split_list(*text)) {
    entry.erase(0, std::min(entry.find_first_not_of(' '), entry.size()));
    entry.erase(entry.find_last_not_of(' ') + 1);
    const auto kind = kind_of(entry);
    if (kind == kNone || (found.count > 0 && kind != found.kind)) {
      found.ignored = entry;
      break;
    }
    found.kind = kind;
    ++found.count;
  }
  return found;
}

std::string words_on(const VisibleDevices& devices) {
  using enum VisibleDevices::Kind;
  const std::string text = fmt::format("CUDA_VISIBLE_DEVICES is '{}'", shown(devices.text));
  const std::string rest = devices.ignored.empty() ? ""
                                                   : fmt::format("; CUDA ignores it from '{}' on",
                                                                 shown(devices.ignored));
  const std::string instances = counted(devices.count, "MIG instance");
  switch (devices.kind) {
    case kAll:
      return "";
    case kNone:
      return text + (devices.text == "NoDevFiles"
                         ? ", by which Slurm hides all GPUs from a task that was granted none"
                         : ", which hides all GPUs");
    case kIndices:
      return text + ", numbers of GPUs" + rest;
    case kUuids:
      return text + ", unique ids of GPUs" + rest;
    case kMig:
      return fmt::format(
                 "{}, {}{}", text, instances,
                 devices.count > 1 ? ", of which CUDA shows a process the first alone" : "") +
             rest;
  }
  return text;
}

// A rank takes the GPU with the fewest ranks among those that it sees, and the first of several
// such. Ranks that see fewer GPUs choose first. If all ranks see the same list, rank 0 gets the
// first GPU, rank 1 the second, and so on round robin.
std::vector<int> choose_devices(const std::vector<std::vector<std::string>>& visible,
                                bool may_share, const GpuEnvironment& environment) {
  std::map<std::string, int> ranks_on;
  std::vector<int> chosen(visible.size());
  std::set<std::string> all;
  bool shared = false;
  std::vector<std::size_t> order(visible.size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::stable_sort(order.begin(), order.end(), [&](std::size_t left, std::size_t right) {
    return visible[left].size() < visible[right].size();
  });
  for (const std::size_t rank : order) {
    const std::vector<std::string>& gpus = visible[rank];
    if (gpus.empty()) throw ConfigError(no_gpu_message(rank, environment));
    all.insert(gpus.begin(), gpus.end());
    const auto least = std::min_element(
        gpus.begin(), gpus.end(),
        [&](const auto& left, const auto& right) { return ranks_on[left] < ranks_on[right]; });
    chosen[rank] = static_cast<int>(least - gpus.begin());
    shared |= ++ranks_on[*least] > 1;
  }
  if (shared && !may_share) {
    throw ConfigError(too_few_message(visible.size(), all.size(), environment));
  }
  return chosen;
}

std::vector<int> parse_cpu_list(const std::string& text) {
  std::vector<int> cpus;
  std::istringstream parts(text);
  for (std::string part; std::getline(parts, part, ',');) {
    const char* end = part.data() + part.size();
    int first = 0;
    auto read = std::from_chars(part.data(), end, first);
    int last = first;
    if (read.ec == std::errc() && read.ptr != end && *read.ptr == '-') {
      read = std::from_chars(read.ptr + 1, end, last);
    }
    const auto most = static_cast<int>(kMaxCpus);
    if (read.ec != std::errc() || read.ptr != end || first < 0 || last < first || last >= most) {
      return {};
    }
    for (int cpu = first; cpu <= last; ++cpu) cpus.push_back(cpu);
  }
  return cpus;
}

DevicePlace place_of_device(const std::filesystem::path& root, const std::string& pci_bus_id) {
  const std::filesystem::path folder = root / "bus/pci/devices" / pci_bus_id;
  DevicePlace place;
  const std::string node = first_line_of(folder / "numa_node");
  if (std::from_chars(node.data(), node.data() + node.size(), place.numa_node).ec != std::errc()) {
    place.numa_node = -1;
  }
  place.cpus = parse_cpu_list(first_line_of(folder / "local_cpulist"));
  return place;
}

std::vector<int> own_cpus() {
  const CpuMask mask = own_cpu_mask();
  std::vector<int> cpus;
  for (std::size_t cpu = 0; cpu < kMaxCpus; ++cpu) {
    if (mask[cpu]) cpus.push_back(static_cast<int>(cpu));
  }
  return cpus;
}

std::vector<int> online_cpus(const std::filesystem::path& root) {
  return parse_cpu_list(first_line_of(root / "devices/system/cpu/online"));
}

std::optional<std::vector<int>> cpus_to_bind(const std::vector<int>& own,
                                             const std::vector<int>& online,
                                             const DevicePlace& place) {
  if (own != online) return {};
  std::vector<int> near;
  std::set_intersection(own.begin(), own.end(), place.cpus.begin(), place.cpus.end(),
                        std::back_inserter(near));
  if (near.empty() || near == own) return {};
  return near;
}

}  // namespace trireme
