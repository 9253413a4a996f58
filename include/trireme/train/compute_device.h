// Where the ranks of a job compute: on CPUs, or each on a GPU.
#pragma once

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
  bool tf32 = false;             // products of fp32 on a GPU round their operands to TF32
};
DeviceRequest device_request(const Config& config);

// Throws ConfigError where this build lacks what is asked for; looks at no GPU.
void check_backends(const DeviceRequest& request);

struct ComputeDevice {
  ops::Context context;
  std::string name = "cpu";  // or "NVIDIA H200": it decides bits, so a run records it
  // What carries tensors between ranks, "mpi" or "NCCL 2.28.9"; it decides bits too.
  std::string carrier = "mpi";
  std::string description;  // a line for the start-up table; empty where there is nothing to say
  // Ends before the context: see there. None on CPUs. Whoever keeps tensors of the context keeps
  // this object, and longer.
  std::unique_ptr<Runtime::DeviceUse> use = {};
};

// "auto" is a GPU where every rank sees one, otherwise the CPU. On GPUs: chooses this rank's
// (comm/device_choice.h), keeps this process to the processors next to it unless the launcher has
// bound it, and lets the communicators carry its tensors. Collective over the world, once, before
// any group of ranks is made. Throws ConfigError where "cuda" is asked for and some rank sees no
// GPU, or ranks would have to share one and may not.
ComputeDevice choose_compute_device(Runtime& runtime, const DeviceRequest& request);

}  // namespace trireme
