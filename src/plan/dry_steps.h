// The dry run of one rank for one number of micro-batches.
#pragma once

#include <cstddef>

#include "trireme/plan/dry_run.h"

namespace trireme::plan {

// Builds the rank's part of the model and runs two steps: training of `count` micro-batches where
// the replica with the most of them has `in_step`, an evaluation of `count`, or predictions.
DryRunResult run_micro_batches(const DryRunInput& input, int place, int count, int in_step);

// Returns the most bytes that the rank at this place holds of gradients.
std::size_t gradients_of(const DryRunInput& input, int place);

}  // namespace trireme::plan
