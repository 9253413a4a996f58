// What a point of a scaling study runs on, as far as it can be found out.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/control_group.h"
#include "trireme/comm/runtime.h"
#include "trireme/report/html_page.h"
#include "trireme/setup/compute_device.h"
#include "trireme/study/scaling.h"

namespace trireme::scaling {

inline constexpr const char* kNotKnown = "not known";

// Collective over the world. Returns the conditions that the ranks can see: all but the program and
// the launcher.
// `root` is "/" except in tests.
Conditions conditions_of(Runtime& runtime, const ComputeDevice& device,
                         const std::filesystem::path& root = "/");

// Returns the processor's model from the text of /proc/cpuinfo, or kNotKnown.
std::string processor_in(std::string_view cpuinfo);

// What a node of a run may use. Nodes of a launcher may share a machine, and groups of it.
struct NodeProcessors {
  std::string machine;  // empty: not known
  double online = 0.0;  // of the machine; 0: not known
  double usable = 0.0;  // at most as many as the node's ranks have threads, or its quota
  std::vector<GroupLimit> quotas = {};  // of its processes, as group_limits returns them
};
// Returns the processors that all of the nodes can use at the same time; 0: not known.
double processors_of(std::span<const NodeProcessors> nodes);

// What can be known of the network without asking the library that uses it.
struct NetworkFacts {
  std::string mpi_device;               // "ch4:ucx"
  std::vector<std::string> settings;    // of the environment: "UCX_TLS=tcp,self"
  std::vector<std::string> interfaces;  // of this node: "eth0 (10000 Mb/s)"
};
// Reads the environment and, below `root`, /sys/class/infiniband and /sys/class/net.
NetworkFacts gather_network_facts(const std::filesystem::path& root = "/");
// Returns one line, or kNotKnown where there are no facts. It never says which interface MPI uses.
std::string network_text(const NetworkFacts& facts);

// Returns the hosts in Slurm's notation, in the given order, each once: "login, n[01-04,07]".
std::string host_ranges(const std::vector<std::string>& hosts);

// Returns what the results ran on, as text for people. For each key it gives the value that all
// results share, or else all values. Results without conditions count as "not recorded".
Facts facts_of(std::span<const PointResult> results);

// Returns one line for each condition that should be the same for all results and is not: program,
// processor, device, MPI, network. Conditions that were not recorded are not compared.
std::vector<std::string> differences_of(std::span<const PointResult> results);

}  // namespace trireme::scaling
