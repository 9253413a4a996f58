// NVML's functions are declared here according to its manual, because not every toolkit has its
// header.
#include "trireme/tensor/nvml.h"

#include <algorithm>
#include <cctype>

#include "trireme/base/dynamic_library.h"

namespace trireme::cuda {
namespace {

using Gpu = void*;   // nvmlDevice_t
using Status = int;  // 0: done

struct PciInfo {  // nvmlPciInfo_t
  char legacy_bus_id[16];
  unsigned domain, bus, device, id, subsystem_id;
  char bus_id[32];  // "00000000:19:00.0"
};

constexpr int kSmClock = 1;                        // NVML_CLOCK_SM
constexpr int kUncorrected = 1;                    // NVML_MEMORY_ERROR_TYPE_UNCORRECTED
constexpr int kSinceDriverLoad = 0;                // NVML_VOLATILE_ECC
constexpr unsigned kMostLinks = 18;                // NVML_NVLINK_MAX_LINKS
constexpr unsigned long long kHeat = 0x20 | 0x40;  // thermal slowdown, by software and hardware
constexpr unsigned long long kPower = 0x80;        // power brake

// Calls a function of the library. Returns false if it is missing or fails.
template <class... Arguments>
bool ask(const DynamicLibrary& library, const char* function, Arguments... arguments) {
  auto* call = library.function<Status(Arguments...)>(function);
  return call != nullptr && call(arguments...) == 0;
}

// NVML writes the PCI domain with eight digits, sysfs with four.
std::string sysfs_bus_id(std::string bus_id) {
  if (bus_id.find(':') == 8) bus_id.erase(0, 4);
  std::transform(bus_id.begin(), bus_id.end(), bus_id.begin(),
                 [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return bus_id;
}

std::string pci_bus_id_of(const DynamicLibrary& nvml, Gpu gpu) {
  PciInfo pci{};
  return ask(nvml, "nvmlDeviceGetPciInfo_v3", gpu, &pci) ? sysfs_bus_id(pci.bus_id) : "";
}

// Returns why NVML does not start, or nothing.
std::string start(const DynamicLibrary& nvml) {
  if (!nvml.found()) return nvml.why_not();
  return ask(nvml, "nvmlInit_v2") ? "" : "NVML does not start: is the driver loaded?";
}

std::vector<Gpu> all_gpus(const DynamicLibrary& nvml) {
  unsigned count = 0;
  if (!ask(nvml, "nvmlDeviceGetCount_v2", &count)) count = 0;
  std::vector<Gpu> gpus;
  for (unsigned i = 0; i < count; ++i) {
    Gpu gpu = nullptr;
    if (ask(nvml, "nvmlDeviceGetHandleByIndex_v2", i, &gpu)) gpus.push_back(gpu);
  }
  return gpus;
}

GpuHealth health_of(const DynamicLibrary& nvml, Gpu gpu) {
  GpuHealth health;
  char name[96] = {};
  if (ask(nvml, "nvmlDeviceGetName", gpu, static_cast<char*>(name), unsigned{sizeof name})) {
    health.name = name;
  }
  health.pci_bus_id = pci_bus_id_of(nvml, gpu);
  int on = 0, later = 0;
  if (ask(nvml, "nvmlDeviceGetPersistenceMode", gpu, &on)) health.persistence = on != 0;
  if (ask(nvml, "nvmlDeviceGetEccMode", gpu, &on, &later)) health.ecc = on != 0;
  unsigned long long errors = 0;
  if (ask(nvml, "nvmlDeviceGetTotalEccErrors", gpu, kUncorrected, kSinceDriverLoad, &errors)) {
    health.uncorrected_errors = errors;
  }
  unsigned clock = 0;
  if (ask(nvml, "nvmlDeviceGetClockInfo", gpu, kSmClock, &clock)) health.clock = clock;
  if (ask(nvml, "nvmlDeviceGetMaxClockInfo", gpu, kSmClock, &clock)) health.max_clock = clock;
  unsigned milliwatts = 0;
  if (ask(nvml, "nvmlDeviceGetPowerUsage", gpu, &milliwatts)) health.power = milliwatts * 1e-3;
  unsigned long long reasons = 0;
  if (ask(nvml, "nvmlDeviceGetCurrentClocksThrottleReasons", gpu, &reasons)) {
    health.slowed_by_heat = (reasons & kHeat) != 0;
    health.slowed_by_power = (reasons & kPower) != 0;
  }
  for (unsigned link = 0; link < kMostLinks; ++link) {
    if (ask(nvml, "nvmlDeviceGetNvLinkState", gpu, link, &on)) health.nvlinks += on != 0;
  }
  return health;
}

}  // namespace

HealthReport gpu_health(const std::vector<std::string>& names) {
  HealthReport report;
  const DynamicLibrary nvml(names);
  report.why_not = start(nvml);
  if (!report.why_not.empty()) return report;
  char driver[96] = {};
  if (ask(nvml, "nvmlSystemGetDriverVersion", static_cast<char*>(driver),
          unsigned{sizeof driver})) {
    report.driver = driver;
  }
  for (const Gpu gpu : all_gpus(nvml)) report.gpus.push_back(health_of(nvml, gpu));
  ask(nvml, "nvmlShutdown");
  return report;
}

GpuLinks gpu_links(const std::vector<std::string>& names) {
  GpuLinks result;
  std::vector<std::vector<std::string>> peers;  // what is at the other ends of a GPU's links
  const DynamicLibrary nvml(names);
  if (!start(nvml).empty()) return result;
  for (const Gpu gpu : all_gpus(nvml)) {
    const std::string address = pci_bus_id_of(nvml, gpu);
    if (address.empty()) continue;
    result.gpus.push_back(address);
    auto& own = peers.emplace_back();
    for (unsigned link = 0; link < kMostLinks; ++link) {
      int up = 0;
      PciInfo peer{};
      if (ask(nvml, "nvmlDeviceGetNvLinkState", gpu, link, &up) && up != 0 &&
          ask(nvml, "nvmlDeviceGetNvLinkRemotePciInfo_v2", gpu, link, &peer)) {
        own.push_back(sysfs_bus_id(peer.bus_id));
      }
    }
  }
  ask(nvml, "nvmlShutdown");
  const auto to_switches = [&](std::size_t gpu) {
    return std::ranges::count_if(peers[gpu], [&](const std::string& peer) {
      return std::ranges::find(result.gpus, peer) == result.gpus.end();
    });
  };
  for (std::size_t i = 0; i < peers.size(); ++i) {
    auto& row = result.nvlinks.emplace_back(peers.size(), 0);
    for (std::size_t j = 0; j < peers.size(); ++j) {
      if (i == j) continue;
      row[j] = static_cast<int>(std::ranges::count(peers[i], result.gpus[j]) +
                                std::min(to_switches(i), to_switches(j)));
    }
  }
  return result;
}

}  // namespace trireme::cuda
