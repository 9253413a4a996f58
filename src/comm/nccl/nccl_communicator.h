// A group of ranks with a GPU each.
//
// Tensors on the GPU go to NCCL, on the communicator's own stream. Tensors on the host, and what
// ranks agree on, go to a communicator over MPI of the same ranks. Operations on the GPU run one
// after another, in the order of the calls; each exchange is one fused operation. The host does not
// wait for them, and streams wait by events. order_guard.h has the rule by which NCCL and MPI share
// a host.
//
// NCCL carries reductions on the GPU. Of communicator.h's guarantees this one holds: the result has
// the same bits on every rank, and from run to run on the same grid, GPUs and links with the same
// NCCL and the same algorithm (NCCL_ALGO, NCCL_PROTO, NCCL_WIN_ENABLE, a tuner: choices to be
// recorded). These do not hold: the order of sums and the single rounding. NCCL rounds bf16 and
// fp16 at each step of a ring or tree.
#pragma once

#include <memory>

#include "trireme/comm/communicator.h"

#include "comm/nccl/nccl_connection.h"

namespace trireme::nccl {

// Collective over the ranks of `host`, which the result owns. The recorder keeps operations on the
// GPU under the number `lane`. The session outlives the communicator.
std::unique_ptr<Communicator> make_communicator(Session& session,
                                                std::unique_ptr<Communicator> host, int lane);

}  // namespace trireme::nccl
