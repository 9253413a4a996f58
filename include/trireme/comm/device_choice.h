// Which GPU each rank of a node uses, and which processors are next to that GPU.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace trireme {

// What the launcher and the user say about the GPUs of a rank; empty where they say nothing.
struct GpuEnvironment {
  std::optional<std::string> cuda_visible_devices;  // may be set and empty
  std::string slurm_job;                            // the job's id
  std::string slurm_gpus_on_node;                   // how many GPUs the job has on this node
  std::string slurm_gpu_bind;
  std::string nccl_launch_order;  // NCCL_LAUNCH_ORDER_IMPLICIT
};
GpuEnvironment gpu_environment();

// What CUDA_VISIBLE_DEVICES shows. CUDA takes its entries up to the first that is none of these.
struct VisibleDevices {
  enum class Kind {
    kAll,      // it is not set
    kNone,     // it hides all GPUs: empty, or begins with an entry that names none
    kIndices,  // "0,1"
    kUuids,    // "GPU-8932f937-..."
    kMig       // "MIG-...": instances, of which CUDA shows a process the first alone
  };
  Kind kind = Kind::kAll;
  int count = 0;        // of the entries that name something
  std::string text;     // the variable's value
  std::string ignored;  // the first entry that CUDA does not take; it takes none after it
};
VisibleDevices read_visible_devices(const std::optional<std::string>& text);
// Returns words for people: "CUDA_VISIBLE_DEVICES is '-1', which hides all GPUs"; empty where it is
// not set.
std::string words_on(const VisibleDevices& devices);

// Returns, for each rank of a node in order of local rank, the GPU that it uses, as an index into
// the list of GPUs that CUDA shows to that rank. `visible` holds each rank's GPUs by their uuids,
// so it does not matter whether a rank sees all GPUs of the node or only those that the launcher
// bound it to. The ranks are spread evenly over the GPUs. Several ranks may use one GPU only with
// `may_share`, which is comm.backend = mpi. The answer depends on the arguments alone, so all ranks
// of a node get the same one. Throws ConfigError, whose message says what to ask Slurm for.
std::vector<int> choose_devices(const std::vector<std::vector<std::string>>& visible,
                                bool may_share, const GpuEnvironment& environment);

// Parses a list such as "0-3,8", as sysfs writes it. Returns an empty list for anything else.
std::vector<int> parse_cpu_list(const std::string& text);

// Where a device is attached, read from sysfs below `root` ("/sys").
struct DevicePlace {
  int numa_node = -1;     // -1: not known, or the machine has one node
  std::vector<int> cpus;  // next to the device; empty if not known
};
DevicePlace place_of_device(const std::filesystem::path& root, const std::string& pci_bus_id);

// The processors that this process may run on, and all processors of the machine.
std::vector<int> own_cpus();
std::vector<int> online_cpus(const std::filesystem::path& root);

// The processors that a rank should be bound to: those of `own` that are next to its device.
// Nothing if the launcher has already bound the rank (`own` is not all of `online`), or if none is
// near.
std::optional<std::vector<int>> cpus_to_bind(const std::vector<int>& own,
                                             const std::vector<int>& online,
                                             const DevicePlace& place);

}  // namespace trireme
