// `trireme doctor`: finds what would keep a run on this node from starting, or make it slow. Facts
// are gathered in one place and judged in another, so that a test can bring its own facts.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/device_choice.h"
#include "trireme/comm/launcher.h"
#include "trireme/comm/rank_blocks.h"
#include "trireme/tensor/cuda.h"
#include "trireme/tensor/nvml.h"
#include "trireme/topology/fabric.h"
#include "trireme/topology/local_ports.h"
#include "trireme/topology/probe.h"

namespace trireme {

struct GpuFacts {
  cuda::DeviceProperties properties;
  std::vector<int> unreachable;  // other visible GPUs whose memory this GPU cannot address
  DevicePlace place;
  std::optional<cuda::GpuHealth> health;
};

struct NodeFacts {
  std::string node;

  std::string mpi, hdf5, instructions;
  bool hdf5_thread_safe = false;
  LaunchedTasks launched;
  bool process_manager = false;  // the launcher offers PMI or PMIx to MPI
  std::vector<int> own_cpus, online_cpus;
  std::int64_t memory = 0, memory_available = 0;  // bytes
  std::optional<std::int64_t> memory_limit;       // bytes, of this process's control group
  std::optional<double> processor_quota;          // processors, of its control group
  std::int64_t shared_memory = 0;                 // bytes of /dev/shm; 0: there is none
  std::optional<std::int64_t> lockable_memory;    // bytes; nullopt: any amount
  std::int64_t open_files = 0;                    // limit
  std::vector<std::string> rdma_devices;          // "mlx5_0"
  std::vector<LocalPort> ports;                   // InfiniBand's and RoCE's

  cuda::BuildInfo build;
  std::vector<cuda::LibraryInfo> libraries;
  int pci_gpus = 0;           // NVIDIA GPUs, with or without a driver
  std::string driver_module;  // the driver's own version line; empty if it is not loaded
  int driver_cuda = 0, runtime_cuda = 0;
  cuda::Devices devices;
  GpuEnvironment gpu_environment;
  std::string health_why_not;
  std::vector<GpuFacts> gpus;
  bool peer_memory_module = false;  // nvidia_peermem
  bool nccl_plugin = false;         // libnccl-net.so
};

// Gathers the facts of the node that this process runs on. `root` is "/" except in tests. A node
// without GPUs, or without the rights to look at something, causes no exception.
NodeFacts gather_node_facts(cuda::Runtime& runtime, const std::filesystem::path& root = "/");

enum class Verdict { kOk, kWarning, kProblem, kNotHere };
std::string_view name_of(Verdict verdict);  // "ok", "warning", "problem", "not here"

struct Finding {
  Verdict verdict;
  std::string subject;
  std::string what;
  std::string remedy;  // empty where there is nothing to do
  // The beginning of `what`, if it is a number that may differ between nodes without any meaning.
  std::string varying = {};
};

// Returns the findings in the order in which they are shown: the node, then its GPUs.
std::vector<Finding> diagnose(const NodeFacts& facts);

// Returns text for the terminal: one line per finding, and a count.
std::string doctor_text(const std::string& node, const std::vector<Finding>& findings);

struct NodeFindings {
  std::string node;
  std::vector<Finding> findings;
  std::vector<LocalPort> ports = {};  // of to_json(): only name, GUID, states and rates
  // The rate of its fastest cable in what describes the fabric; not of to_json(). 0: not known.
  double cable_bytes_per_second = 0.0;
  double products_per_second = 0.0;  // in FLOP/s; not of to_json(). 0: not measured
};

// Measures matrix products in fp32 on as many threads as a run would have here, which takes under a
// second. Returns FLOP/s.
double measure_products();
// Adds how fast each node computes, compared with the fastest, and what the allocation loses where
// all replicas wait for the slowest, and where their shares follow their speed. Says nothing where
// a node was not measured, or is alone.
void compare_speeds(std::vector<NodeFindings>& nodes);

// Replaces the finding on a port that is slower than the ports of this name on most nodes, or does
// not work where those on most nodes do.
void compare_ports(std::vector<NodeFindings>& nodes);
// Compares the ports with the cables of the fabric: names a port that has less than three quarters
// of its cable's rate, or of what is usual at its switch; a cable that has less than the others
// there; and a port that does not work where a cable is. Returns what is slow between switches, and
// which of their leaf switches has a worse taper than others, where the nodes are on several. A
// fabric without rates says nothing.
std::vector<Finding> compare_with_cables(std::vector<NodeFindings>& nodes, const Fabric& fabric);
// Adds to each node how fast its messages were, compared with the other nodes and with the rate of
// its ports. `hosts` are the names that the probe's streams count.
void judge_network(std::vector<NodeFindings>& nodes, const Probe& probe,
                   const std::vector<std::string>& hosts);
// Returns what was measured to be slow and belongs to no single node.
std::vector<Finding> findings_between_nodes(const Probe& probe);
// Compares what the nodes below a switch reach together with the rates of its cables upwards, for
// each level that the job crosses: one finding each. Nothing where the fabric does not have all
// nodes and rates. `blocks` and `hosts` tell the blocks and the host of each rank.
std::vector<Finding> compare_uplinks(const Probe& probe, const RankBlocks& blocks,
                                     const std::vector<std::string>& hosts, const Fabric& fabric);

// These return text for the terminal about all nodes of an allocation. First what is the same on
// all of them, one line per finding; then what differs, with the nodes.
std::string doctor_findings(const std::vector<NodeFindings>& nodes);
// What the network's measurement has found on each node, and `between`, what belongs to no single
// node.
std::string doctor_network(const std::vector<NodeFindings>& nodes,
                           const std::vector<Finding>& between);
// The nodes that have problems or warnings.
std::string doctor_verdict(const std::vector<NodeFindings>& nodes);

// These convert findings to text for another rank, and back. node_findings_from throws
// InternalError.
std::string to_json(const NodeFindings& node);
NodeFindings node_findings_from(const std::string& json);

// Returns whether the launcher started several processes that can find each other through MPI.
bool processes_can_meet();

// Returns whether machine code or PTX for these architectures ("80, 90a, 120 PTX") runs on a GPU of
// this compute capability.
bool runs_on(const std::string& architectures, int major, int minor);

}  // namespace trireme
