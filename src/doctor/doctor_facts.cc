// Gathers the facts about the node.
#include <algorithm>
#include <cstdlib>
#include <sstream>

#include <sys/resource.h>
#include <sys/statvfs.h>

#include "trireme/base/control_group.h"
#include "trireme/base/dynamic_library.h"
#include "trireme/base/error.h"
#include "trireme/base/kernel_files.h"
#include "trireme/comm/version.h"
#include "trireme/doctor/doctor.h"
#include "trireme/io/hdf5.h"
#include "trireme/io/version.h"
#include "trireme/ops/context.h"

namespace trireme {
namespace {

namespace fs = std::filesystem;

// Returns the value of a line such as "MemTotal:  16384 kB" of /proc/meminfo, in bytes.
std::int64_t memory_entry(const fs::path& root, const std::string& name) {
  std::istringstream file(kernel_text(root / "proc/meminfo"));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with(name + ":")) {
      return std::atoll(line.c_str() + name.size() + 1) * 1024;
    }
  }
  return 0;
}

// Returns the lowest limit of this process's control group and of those above it.
std::optional<double> lowest_limit(GroupResource resource, const fs::path& root) {
  const auto least = least_limit(group_limits(resource, root));
  return least ? std::optional(least->amount) : std::nullopt;
}

// Returns the number of NVIDIA's display and 3D controllers.
int pci_gpus(const fs::path& root) {
  const fs::path devices = root / "sys/bus/pci/devices";
  int count = 0;
  for (const std::string& device : kernel_names(devices)) {
    const std::string kind = first_line_of(devices / device / "class");
    count += first_line_of(devices / device / "vendor") == "0x10de" && kind.starts_with("0x03");
  }
  return count;
}

bool any_set(std::initializer_list<const char*> variables) {
  return std::any_of(variables.begin(), variables.end(),
                     [](const char* name) { return std::getenv(name) != nullptr; });
}

void gather_node(NodeFacts& facts, const fs::path& root) {
  facts.node = node_name();
  facts.mpi = mpi_library_version();
  facts.hdf5 = hdf5::library_version();
  facts.hdf5_thread_safe = hdf5::library_is_thread_safe();
  facts.instructions = ops::instruction_set(ops::make_cpu_context(1));
  facts.launched = launched_tasks();
  facts.process_manager = any_set({"PMI_RANK", "PMI_FD", "PMIX_RANK", "PMIX_NAMESPACE"});
  facts.own_cpus = own_cpus();
  facts.online_cpus = online_cpus(root / "sys");
  facts.memory = memory_entry(root, "MemTotal");
  facts.memory_available = memory_entry(root, "MemAvailable");
  if (const auto limit = lowest_limit(GroupResource::kMemory, root)) {
    facts.memory_limit = static_cast<std::int64_t>(*limit);
  }
  facts.processor_quota = lowest_limit(GroupResource::kProcessors, root);
  struct statvfs shm {};
  if (statvfs((root / "dev/shm").c_str(), &shm) == 0) {
    facts.shared_memory =
        static_cast<std::int64_t>(shm.f_blocks) * static_cast<std::int64_t>(shm.f_frsize);
  }
  rlimit limit{};
  if (getrlimit(RLIMIT_MEMLOCK, &limit) == 0 && limit.rlim_cur != RLIM_INFINITY) {
    facts.lockable_memory = static_cast<std::int64_t>(limit.rlim_cur);
  }
  if (getrlimit(RLIMIT_NOFILE, &limit) == 0) {
    facts.open_files = static_cast<std::int64_t>(limit.rlim_cur);
  }
  facts.rdma_devices = kernel_names(root / "sys/class/infiniband");
  facts.ports = read_local_ports((root / "sys").string());
}

void gather_gpus(NodeFacts& facts, cuda::Runtime& runtime, const fs::path& root) {
  const cuda::HealthReport health = cuda::gpu_health();
  facts.health_why_not = health.why_not;
  for (int device = 0; device < facts.devices.count; ++device) {
    GpuFacts gpu;
    gpu.properties = runtime.properties(device);
    for (int peer = 0; peer < facts.devices.count; ++peer) {
      if (peer != device && !runtime.can_access_peer(device, peer)) gpu.unreachable.push_back(peer);
    }
    gpu.place = place_of_device(root / "sys", gpu.properties.pci_bus_id);
    for (const cuda::GpuHealth& found : health.gpus) {
      if (found.pci_bus_id == gpu.properties.pci_bus_id) gpu.health = found;
    }
    facts.gpus.push_back(std::move(gpu));
  }
}

}  // namespace

bool processes_can_meet() {
  return launched_tasks().count > 1 && any_set({"PMI_FD", "PMI_PORT", "PMIX_NAMESPACE"});
}

NodeFacts gather_node_facts(cuda::Runtime& runtime, const fs::path& root) {
  NodeFacts facts;
  gather_node(facts, root);
  facts.build = cuda::build_info();
  facts.pci_gpus = pci_gpus(root);
  facts.driver_module = first_line_of(root / "proc/driver/nvidia/version");
  facts.driver_cuda = runtime.driver_version();
  facts.runtime_cuda = runtime.runtime_version();
  facts.devices = runtime.devices();
  facts.gpu_environment = gpu_environment();
  facts.peer_memory_module = !kernel_names(root / "sys/module/nvidia_peermem").empty();
  if (facts.devices.count == 0) return facts;
  facts.libraries = cuda::find_libraries();
  facts.nccl_plugin = DynamicLibrary({"libnccl-net.so"}).found();
  try {
    gather_gpus(facts, runtime, root);
  } catch (const Error& error) {
    facts.devices = {0, error.what()};
  }
  return facts;
}

}  // namespace trireme
