// Checks whether ranks fit into their memory, before anything is allocated.
#pragma once

#include <cstdint>

#include "trireme/comm/runtime.h"
#include "trireme/ops/context.h"
#include "trireme/train/memory_estimate.h"

namespace trireme {

// These throw ConfigError if the ranks do not fit. It says what takes the memory, and what would
// take less.
void check_node_memory(const MemoryEstimate& memory, int tasks, std::int64_t node_mib);
void check_gpu_memory(const MemoryEstimate& memory, std::int64_t gpu_mib);

// The same for the actual ranks of this node, or for this rank's GPU. It refuses only what needs
// more than twice the memory that the node or GPU has, since an estimate may be too high, and an
// impossible run needs far more. A run that passes but needs more than is free ends with status 71
// when it allocates.
void check_memory_here(const MemoryEstimate& memory, const Runtime& runtime,
                       const ops::Context& ctx);

// Returns the part of an estimate that evaluation and generation need: weights and activations.
MemoryEstimate without_training(MemoryEstimate memory);

}  // namespace trireme
