// GPU memory that NCCL shares among ranks, and its registration with communicators.
//
// Ranks can map only memory that CUDA's virtual memory calls have made, which is what NCCL's own
// allocator does; blocks of cudaMallocAsync are refused. A symmetric window (NCCL 2.27) is best:
// all ranks see each other's memory, and kernels and switches add up in place. Memory is in one
// window at most, which all versions accept. With further communicators it is registered as a
// buffer, which saves copies where a path allows it.
//
// A window is collective and equally large on all ranks. So a tied parameter's block, which other
// stages have too, is not part of a stage's gradients. If a single rank were refused a window at
// once, the others would hang in it until the watchdog ends the job. An error that NCCL finds later
// is a fault like any other. NCCL_WIN_ENABLE=0 turns windows off.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

#include "comm/nccl/nccl_connection.h"

namespace trireme::nccl {

// Collective. Registers memory with a communicator whose operations use `connection`. The ranks
// agree by `comm` (the same ranks, over MPI), so that all do the same. If NCCL refuses it, returns
// nullptr, and the communicator's rank 0 says so, once per run. The registration ends when the
// result is released: it then waits for the device first, or, with an exception in flight, leaves
// it to the end of the communicator.
std::shared_ptr<void> register_memory(Session& session,
                                      const std::shared_ptr<Connection>& connection,
                                      Communicator& comm, const Buffer& memory, std::size_t bytes);

}  // namespace trireme::nccl
