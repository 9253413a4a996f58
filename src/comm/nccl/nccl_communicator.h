// A group of ranks with a GPU each.
//
// Tensors on the GPU go to NCCL, on a stream of the communicator's own; those on the host, and what
// ranks agree on, to a communicator over MPI of the same ranks. Operations on the GPU run one after
// another, exchanges as one fused operation each, in the order of the calls; the host does not wait
// for them, and streams wait by events. order_guard.h has the rule by which NCCL and MPI share a
// host.
//
// Reductions on the GPU are NCCL's. What holds of communicator.h's promise: the result has the same
// bits on every rank, and from run to run on the same grid, GPUs and links with the same NCCL and
// the same algorithm (NCCL_ALGO, NCCL_PROTO, NCCL_WIN_ENABLE, a tuner: choices to be recorded).
// What does not: the order of sums, and one rounding; bf16 and fp16 are rounded at each step of a ring or
// tree.
#pragma once

#include <memory>

#include "trireme/comm/communicator.h"

#include "nccl_connection.h"

namespace trireme::nccl {

// Collective over the ranks of `host`, which it takes over. `lane` is what the recorder keeps
// operations on the GPU under. The session outlives the communicator.
std::unique_ptr<Communicator> make_communicator(Session& session,
                                                std::unique_ptr<Communicator> host, int lane);

}  // namespace trireme::nccl
