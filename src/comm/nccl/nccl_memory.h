// Memory of a GPU that NCCL shares among ranks, and how communicators are told of it.
//
// Ranks can map only memory that CUDA's virtual memory calls have made, which is what NCCL's own
// allocator does; blocks of cudaMallocAsync are refused. Best is a symmetric window (NCCL 2.27):
// all ranks see each other's memory, and kernels and switches add up in place. Memory is in one
// window at most, which all versions take; to further communicators it is made known as a buffer,
// which spares copies where a path allows.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/comm/communicator.h"

#include "nccl_connection.h"

namespace trireme::nccl {

// Registers memory with a communicator, whose operations go by `connection`. Collective: `comm`
// (its ranks, over MPI) decides, so that all ranks do the same. Where NCCL refuses it, nullptr, and
// the communicator's rank 0 says so once in a run. Ends when the result is let go of: waits for the
// device first, or, with an exception in flight, leaves it to the communicator's own end.
std::shared_ptr<void> register_memory(Session& session,
                                      const std::shared_ptr<Connection>& connection,
                                      Communicator& comm, const Buffer& memory, std::size_t bytes);

}  // namespace trireme::nccl
