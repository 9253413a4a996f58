// A CUDA whose GPU does not exist.
#pragma once

#include <cstddef>
#include <memory>

#include "trireme/tensor/cuda.h"
#include "trireme/tensor/step_program.h"

namespace trireme::cuda {

// The allocators, streams and events of a GPU work on it as on a real one. Device memory is dry
// (allocator.h), as much of it as anybody asks for; pinned memory is real, and zero when it is new.
// Work that is queued is done at once: copies to the host give zeros, everything else does nothing.
// A graph of captured work is empty and takes no memory. `memory`: bytes of the GPU, for those who
// ask. `log`, if there is one, is told of copies, events and waits.
std::shared_ptr<Runtime> make_dry_runtime(std::size_t memory,
                                          std::shared_ptr<ProgramLog> log = nullptr);

}  // namespace trireme::cuda
