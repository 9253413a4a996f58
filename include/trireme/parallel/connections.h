// The first communication between GPUs, before activations are allocated.
//
// NCCL connects ranks, and takes memory of the GPU for that, when they communicate for the first
// time. If activations came first, the caching allocator could hold what NCCL then lacks, and NCCL
// would fail in the middle of a step.
#pragma once

#include <cstddef>
#include <cstdint>

#include "trireme/parallel/stage.h"

namespace trireme::parallel {

// Collective over the grid. Gives the allocator's reserve back to the GPU, and then does once what
// the ranks of a replica do for a micro-batch of batch x length positions, with tensors of that
// size: the sums of the tensor dimension, and the messages between stages; and what blocks exchange
// with other replicas while they compute (Stage::together_comm). Waits for the GPU. Returns how
// many bytes of its memory are gone for that. Does nothing on a CPU.
std::size_t connect_stage(ops::Context& ctx, const Stage& stage, std::int64_t batch,
                          std::int64_t length);

// Returns the free memory of the context's GPU in bytes, after giving back the allocator's reserve.
// Waits for the GPU.
std::size_t free_device_memory(const ops::Context& ctx);

}  // namespace trireme::parallel
