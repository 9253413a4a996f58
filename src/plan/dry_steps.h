// The dry run of one rank for one number of micro-batches.
#pragma once

#include <cstddef>

#include "trireme/plan/dry_run.h"

namespace trireme::plan {

// Builds the rank's part of the model and runs two steps: training of `count` micro-batches, which
// are `left_out` fewer on every replica than in a step, an evaluation of `count`, or predictions.
DryRunResult run_micro_batches(const DryRunInput& input, int place, int count, int left_out);
// Runs no more steps of training than it takes to record one that is like any later one.
DryRunResult record_micro_batches(const DryRunInput& input, int place, int count, int left_out);

// Returns the most bytes that the rank at this place holds of gradients.
std::size_t gradients_of(const DryRunInput& input, int place);

}  // namespace trireme::plan
