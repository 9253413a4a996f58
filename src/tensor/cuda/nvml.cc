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

GpuHealth health_of(const DynamicLibrary& nvml, Gpu gpu) {
  GpuHealth health;
  char name[96] = {};
  if (ask(nvml, "nvmlDeviceGetName", gpu, static_cast<char*>(name), unsigned{sizeof name})) {
    health.name = name;
  }
  PciInfo pci{};
  if (ask(nvml, "nvmlDeviceGetPciInfo_v3", gpu, &pci)) health.pci_bus_id = sysfs_bus_id(pci.bus_id);
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
  if (!nvml.found()) {
    report.why_not = nvml.why_not();
    return report;
  }
  if (!ask(nvml, "nvmlInit_v2")) {
    report.why_not = "NVML does not start: is the driver loaded?";
    return report;
  }
  char driver[96] = {};
  if (ask(nvml, "nvmlSystemGetDriverVersion", static_cast<char*>(driver),
          unsigned{sizeof driver})) {
    report.driver = driver;
  }
  unsigned count = 0;
  if (!ask(nvml, "nvmlDeviceGetCount_v2", &count)) count = 0;
  for (unsigned i = 0; i < count; ++i) {
    Gpu gpu = nullptr;
    if (ask(nvml, "nvmlDeviceGetHandleByIndex_v2", i, &gpu)) {
      report.gpus.push_back(health_of(nvml, gpu));
    }
  }
  ask(nvml, "nvmlShutdown");
  return report;
}

}  // namespace trireme::cuda
