// The InfiniBand ports of this host, as the kernel tells them in sysfs.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

struct LocalPort {
  std::string adapter;            // "mlx5_0"
  int number = 0;                 // from 1
  std::uint64_t guid = 0;         // of the adapter: node_guid; 0: not known
  std::string state;              // "ACTIVE"
  std::string physical_state;     // "LinkUp"
  std::string link_layer;         // "InfiniBand", or "Ethernet"
  std::string rate;               // "200 Gb/sec (4X HDR)"
  double bytes_per_second = 0.0;  // that the rate means; 0: not known
  int lid = 0, manager_lid = 0;   // 0: not known
  std::string subnet;             // the first half of gids/0: "fe80:0000:0000:0000"
  int numa_node = -1;             // -1: not known
  std::string cpus;               // local_cpus, a mask
};

// Returns the ports below SYSFS/class/infiniband by adapter and number, as far as they can be read:
// at most 1,024. Never throws for what a file holds.
std::vector<LocalPort> read_local_ports(const std::string& sysfs);

// Returns the bytes per second that a port's rate means, 0 if it says none.
double bytes_per_second_of_port(std::string_view rate);

}  // namespace trireme
