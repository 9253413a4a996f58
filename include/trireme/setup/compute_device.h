// Where the ranks of a job compute: on CPUs, or each on a GPU.
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>

#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"
#include "trireme/ops/context.h"

namespace trireme {

struct DeviceRequest {
  std::string device = "auto";   // run.device
  std::string backend = "auto";  // comm.backend
  std::optional<int> threads;    // run.threads
  bool tf32 = false;             // fp32 matrix products on a GPU round their operands to TF32
  Config::Nccl nccl = {};        // nccl.*
  std::string network = "auto";  // comm.network, for nccl.tuner network
  int spared = 0;                // multiprocessors: cuda.spare
  bool any_order = false;        // of attention's gradients: attention.deterministic false
  bool fp8 = false;              // a GPU must have products of e4m3 with block scales
};
DeviceRequest device_request(const Config& config);

// Throws ConfigError if this build lacks what the request asks for. Does not look at any GPU.
void check_backends(const DeviceRequest& request);

// Whether NCCL carries the tensors of GPUs that each belong to one of `ranks`, by request.backend.
bool nccl_carries(const DeviceRequest& request, int ranks);

struct ComputeDevice {
  ops::Context context;
  std::string name = "cpu";  // or "NVIDIA H200"; results depend on it, so a run records it
  // What carries tensors between ranks: "mpi" or "NCCL 2.28.9". Results depend on it, too.
  std::string carrier = "mpi";
  std::string description;  // a line for the start-up table; empty where there is nothing to say
  // What NCCL's tuner was told for each communicator of this rank, by its name; null on CPUs.
  std::shared_ptr<const std::map<std::string, std::string>> nccl_tables = {};
  // Destroyed before the context (see Runtime::DeviceUse). Null on CPUs. Whoever keeps tensors of
  // the context must keep this object for longer than the tensors.
  std::unique_ptr<Runtime::DeviceUse> use = {};
};

// Collective over the world; call it once, before any process group is made. "auto" means a GPU
// where every rank sees one, otherwise the CPU. On GPUs it chooses this rank's GPU
// (comm/device_choice.h), binds this process to the processors next to it unless the launcher has
// bound it, and lets the communicators carry its tensors. Throws ConfigError where "cuda" is asked
// for and some rank sees no GPU, or where ranks would have to share a GPU and may not.
ComputeDevice choose_compute_device(Runtime& runtime, const DeviceRequest& request);

}  // namespace trireme
