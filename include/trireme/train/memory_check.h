// Whether ranks fit into the memory that they get, told before anything is allocated.
#pragma once

#include <cstdint>

#include "trireme/comm/runtime.h"
#include "trireme/ops/context.h"
#include "trireme/train/memory_estimate.h"

namespace trireme {

// Throw ConfigErrors that say what takes the memory, and what would take less.
void check_node_memory(const MemoryEstimate& memory, int tasks, std::int64_t node_mib);
void check_gpu_memory(const MemoryEstimate& memory, std::int64_t gpu_mib);

// The same for the ranks of this node, or this rank's GPU, as they are. Refuses what needs more
// than twice the memory that is there: an estimate may be too high, and what cannot be is far
// beyond. What fits and is more than is free ends with status 71 where it is allocated.
void check_memory_here(const MemoryEstimate& memory, const Runtime& runtime,
                       const ops::Context& ctx);

// What evaluation and generation need of an estimate: weights, and activations of a micro-batch.
MemoryEstimate without_training(MemoryEstimate memory);

}  // namespace trireme
