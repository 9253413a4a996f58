// Checks that ranks that must hold the same parameters and states do hold the same.
#pragma once

#include <cstdint>

#include "trireme/optim/optimizer.h"
#include "trireme/parallel/stage.h"

namespace trireme::parallel {

// Collective over the grid. Compares checksums of the master values and of the optimizer's state
// between the ranks of a replica that hold copies of a parameter, and between the replicas, and
// those of the stage's states between the ranks that hold them. Reads all of it once, which takes
// less than an optimizer step on a CPU; on a GPU, by way of the host, a second for each 5 to 10 GB.
// Sends 32 bytes per parameter and 16 per state in an all-reduce. Waits for
// the stage's stream. `optimizer` has a shard for each of the stage's groups, in their order;
// `step` is for the message. Throws InternalError, the same on all ranks, which names the first
// parameter or state that differs and the ranks that hold each value.
void check_copies(ops::Context& ctx, const Stage& stage, const optim::Optimizer& optimizer,
                  std::int64_t step);

}  // namespace trireme::parallel
