// What the driver's management library says of the GPUs: their state, not their work.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

namespace trireme::cuda {

// What a GPU does not tell is not set.
struct GpuHealth {
  std::string name;
  std::string pci_bus_id;  // as sysfs writes it
  std::optional<bool> persistence, ecc;
  std::optional<std::uint64_t> uncorrected_errors;  // of memory, since the driver was loaded
  std::optional<unsigned> clock, max_clock;         // MHz, of the multiprocessors
  bool slowed_by_heat = false, slowed_by_power = false;
  int nvlinks = 0;  // that are up
};

struct HealthReport {
  std::string why_not;  // one line, where nothing could be asked
  std::string driver;   // "580.65.06"
  std::vector<GpuHealth> gpus;
};

// Asks all GPUs of the machine, also those that CUDA_VISIBLE_DEVICES hides. Changes nothing and
// throws nothing. `names` is where the library may be.
HealthReport gpu_health(const std::vector<std::string>& names = {"libnvidia-ml.so.1"});

}  // namespace trireme::cuda
