// What is inside of one host: sockets, NUMA nodes, network adapters, GPUs, and how near they are.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/json.h"
#include "trireme/tensor/nvml.h"

namespace trireme {

// How far two devices are from each other: what a transfer between them has to pass.
enum class DeviceDistance { kSameCard, kPciSwitch, kHostBridge, kNumaNode, kSystem };
std::string_view name_of(DeviceDistance distance);  // "one PCIe switch"

struct MachineDevice {
  std::string name;         // of an adapter: "mlx5_0", "eth0"; of a GPU: its PCI address
  std::string pci_address;  // as sysfs writes it: "0000:18:00.0"
  bool is_gpu = false;
  bool is_infiniband = false;
  std::uint64_t guid = 0;  // of an InfiniBand adapter; 0: not known
  int numa_node = -1;      // -1: not known
};

struct Machine {
  int sockets = 0, numa_nodes = 0, cores = 0, threads = 0;
  std::vector<MachineDevice> devices = {};
  std::vector<std::vector<DeviceDistance>> distances = {};  // between any two devices
};

// Asks hwloc about this host.
Machine read_this_machine();
// Reads what `lstopo --of xml` has written. Throws ConfigError if hwloc does not take it. hwloc
// trusts such files and crashes over some that are damaged, so a child process reads them.
Machine read_machine_xml(const std::string& text, const std::string& origin);
// Makes the machine that a description of hwloc's says, such as "package:2 numa:1 core:4 pu:2".
// Throws ConfigError if hwloc does not take it.
Machine make_machine(const std::string& description);

// Lines for people; `links` may be empty.
std::vector<std::string> lines_of(const Machine& machine, const cuda::GpuLinks& links);
Json json_of(const Machine& machine, const cuda::GpuLinks& links);

}  // namespace trireme
