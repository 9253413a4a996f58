// The shares of data replicas that a run has come to before this start (batch.balance auto).
#pragma once

#include <optional>
#include <string>

#include "trireme/comm/grid_shape.h"
#include "trireme/config/config.h"
#include "trireme/io/checkpoint.h"
#include "trireme/setup/compute_device.h"

namespace trireme {

// Where batch.balance is auto, gives it the shares of the checkpoint that this start goes on from,
// if there is one of equally many micro-batches and replicas; otherwise it begins with even ones.
// Returns a line for the user; nothing where it is not auto. batch.micro must be settled.
std::string take_over_shares(const std::optional<Checkpoint>& checkpoint,
                             const ComputeDevice& device, const GridShape& grid, Config& config);

}  // namespace trireme
