// What the driver's management library (NVML) says about the state of the GPUs, not about their
// work.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::cuda {

// Values that a GPU does not report are not set.
struct GpuHealth {
  std::string name;
  std::string pci_bus_id;  // as sysfs writes it
  std::optional<bool> persistence, ecc;
  std::optional<std::uint64_t> uncorrected_errors;  // memory errors since the driver was loaded
  std::optional<unsigned> clock, max_clock;         // of the multiprocessors, in MHz
  bool slowed_by_heat = false, slowed_by_power = false;
  int nvlinks = 0;                   // number of active links
  std::optional<double> power = {};  // watts; on many GPUs a mean over the last second
};

struct HealthReport {
  std::string why_not;  // one line, if NVML could not be asked
  std::string driver;   // "580.65.06"
  std::vector<GpuHealth> gpus;
};

// Asks all GPUs of the machine, also those that CUDA_VISIBLE_DEVICES hides. Changes nothing and
// does not throw. `names` lists the names or paths to try for the library.
HealthReport gpu_health(const std::vector<std::string>& names = {"libnvidia-ml.so.1"});

// How the GPUs of the machine are connected with each other.
struct GpuLinks {
  std::vector<std::string> gpus = {};  // their PCI addresses, as sysfs writes them
  // Active NVLinks between any two: direct ones and, through NVSwitches, as many as both have.
  std::vector<std::vector<int>> nvlinks = {};
};

// Like gpu_health: asks all GPUs, changes nothing and does not throw. Without NVML there are none.
GpuLinks gpu_links(const std::vector<std::string>& names = {"libnvidia-ml.so.1"});

}  // namespace trireme::cuda
