// A configuration as the dry run of its ranks takes it.
#pragma once

#include <cstdint>

#include "trireme/config/config.h"
#include "trireme/models/family.h"
#include "trireme/plan/dry_run.h"
#include "trireme/setup/compute_device.h"

namespace trireme {

// On the device that dry_device describes.
plan::DryRunInput dry_run_input(const Config& config, const models::Model& model,
                                const GridShape& grid, int threads = 1, std::int64_t gpu_bytes = 0);

// The device of ranks that are to be. `threads` of a rank count where the configuration leaves
// run.threads out. `gpu_bytes` is the memory of each rank's GPU, 0 without: of a machine that need
// not be this one, with a program that has NCCL, which carries tensors unless comm.backend is mpi.
plan::DryDevice dry_device(const Config& config, int threads = 1, std::int64_t gpu_bytes = 0);
// The device that a rank has chosen.
plan::DryDevice dry_device(const ComputeDevice& device);

}  // namespace trireme
