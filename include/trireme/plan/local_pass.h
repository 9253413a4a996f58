// A step that a rank computes by itself, before it talks to others.
#pragma once

#include "trireme/ops/context.h"
#include "trireme/plan/dry_run.h"

namespace trireme::plan {

// Trains one micro-batch of zeros on the device of `ctx`, by a model of one block of each kind, on
// one stage of the grid, whose ranks are not there (DryRank). So the device loads the kernels of a
// step, of our own and of libraries, while no rank waits for another: CUDA loads a kernel at its
// first launch, for which it may wait for all that the device does, a collective too whose peer
// waits in the same way (CUDA's guide, lazy loading). Loading everything at once instead
// (CUDA_MODULE_LOADING=EAGER) would take the memory and the time of all kernels of cuBLASLt and
// cuDNN, of which a run needs some. What attention is chosen by trials is loaded by these. Waits
// for the device, and leaves nothing there. Does nothing where the device has too little memory.
void local_pass(const ops::Context& ctx, const DryRunInput& input);

}  // namespace trireme::plan
