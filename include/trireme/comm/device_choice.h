// Which GPU each rank of a node works on, and which processors are next to it.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// What the launcher and the user say of the GPUs of a rank; empty where they say nothing.
struct GpuEnvironment {
  std::optional<std::string> cuda_visible_devices;  // may be set and empty
  std::string slurm_job;                            // its id
  std::string slurm_gpus_on_node;                   // how many the job has on this node
  std::string slurm_gpu_bind;
};
GpuEnvironment gpu_environment();

// For each rank of a node, in order of its local rank, which of the GPUs that CUDA shows to it: an
// index into its list. `visible` holds each rank's GPUs by their uuids, so it does not matter
// whether a rank sees all of the node's or, bound by the launcher, only its own. Ranks are spread
// evenly; several on one GPU need `may_share`, which is comm.backend = mpi. The answer follows from
// the arguments alone, so all ranks of a node find the same. Throws ConfigError, which says what to
// ask Slurm for.
std::vector<int> choose_devices(const std::vector<std::vector<std::string>>& visible,
                                bool may_share, const GpuEnvironment& environment);

// "0-3,8" as sysfs writes it. What is no such list is empty.
std::vector<int> parse_cpu_list(const std::string& text);

// Where a device sits, as sysfs below `root` ("/sys") tells it.
struct DevicePlace {
  int numa_node = -1;     // -1: not known, or the machine has one
  std::vector<int> cpus;  // next to it; empty where not known
};
DevicePlace place_of_device(const std::filesystem::path& root, const std::string& pci_bus_id);

// The processors that this process may run on, and all that the machine has.
std::vector<int> own_cpus();
std::vector<int> online_cpus(const std::filesystem::path& root);

// The processors that a rank should keep to: those of `own` next to its device. Nothing where the
// launcher has bound the rank to some already (own is not all of online), or where none is near.
std::optional<std::vector<int>> cpus_to_bind(const std::vector<int>& own,
                                             const std::vector<int>& online,
                                             const DevicePlace& place);

}  // namespace trireme
