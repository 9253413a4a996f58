// A configuration as the dry run of its ranks takes it.
#pragma once

#include "trireme/config/config.h"
#include "trireme/models/family.h"
#include "trireme/plan/dry_run.h"
#include "trireme/setup/compute_device.h"

namespace trireme {

// `threads` of a rank count where the configuration leaves run.threads out.
plan::DryRunInput dry_run_input(const Config& config, const models::Model& model,
                                const GridShape& grid, int threads = 1);

// The device that its dry runs compute on, where no GPU is known.
plan::DryDevice dry_device(const Config& config, const GridShape& grid, int threads = 1);
// The device that a rank has chosen.
plan::DryDevice dry_device(const ComputeDevice& device);

}  // namespace trireme
