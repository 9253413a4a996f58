// What tests of doctor begin with.
#pragma once

#include <string>
#include <vector>

#include "trireme/doctor/doctor.h"

namespace trireme::testing {

// A good node with two GPUs.
inline NodeFacts good_node() {
  NodeFacts facts;
  facts.node = "n1";
  facts.mpi = "MPICH 4.0.2";
  facts.hdf5 = "HDF5 1.10.8";
  facts.instructions = "AVX-512";
  facts.launched = {4, 0, "srun"};
  facts.process_manager = true;
  facts.own_cpus = facts.online_cpus = {0, 1, 2, 3};
  facts.memory = std::int64_t{64} << 30;
  facts.memory_available = std::int64_t{60} << 30;
  facts.shared_memory = std::int64_t{32} << 30;
  facts.open_files = 4096;
  facts.rdma_devices = {"mlx5_0", "mlx5_1"};
  facts.build = {"13.0.88", "80, 90a, 120, 120 PTX", "13.1.0", "9.19.0", "2.28.9"};
  facts.libraries = {{"cuBLASLt", "13.1.0", "/lib/libcublasLt.so.13"}};
  facts.pci_gpus = 2;
  facts.driver_module = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  580.65.06";
  facts.driver_cuda = facts.runtime_cuda = 13000;
  facts.devices.count = 2;
  facts.peer_memory_module = true;
  facts.nccl_plugin = true;
  for (int i = 0; i < 2; ++i) {
    GpuFacts gpu;
    gpu.properties = {"NVIDIA H200", std::to_string(i), "", 9, 0, std::size_t{141} << 30, 132,
                      true};
    gpu.place = {0, {0, 1}};
    gpu.health = cuda::GpuHealth{"NVIDIA H200", "", true, true, 0, 1980, 1980, false, false, 18};
    facts.gpus.push_back(gpu);
  }
  return facts;
}

// What doctor prints of several nodes.
inline std::string summary(const std::vector<NodeFindings>& nodes) {
  return doctor_findings(nodes) + doctor_verdict(nodes);
}

}  // namespace trireme::testing
