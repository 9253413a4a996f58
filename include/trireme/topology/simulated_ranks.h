// Blocking code of many ranks in one process and in virtual time: start-up, checkpoints, pipelines.
//
// Every rank has a fiber of its own. Where the code waits for communication, its rank stops and
// others go on, until the operation is done in the simulated world. Operations of one lane run in
// the order of the calls, and all lanes of a rank at once, as in production (src/comm/README.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>

#include "trireme/comm/communicator_plan.h"
#include "trireme/comm/rank_runtime.h"
#include "trireme/topology/simulated_world.h"

namespace trireme {

// A rank as its code sees it. Its communicators carry host tensors and have no MPI_Comm:
// native_mpi() throws InternalError.
class SimulatedRank : public RankRuntime {
 public:
  virtual double now() const = 0;  // virtual seconds
  // Lets virtual time pass, as a computation does; communication goes on meanwhile.
  virtual void compute(double seconds) = 0;
};

struct SimulatedRanksOptions {
  // `contents` must be true, because blocking code reads what it has received.
  SimulatedWorld::Options world = {};
  // These mean what RuntimeOptions::algorithms and Runtime::use_planner mean.
  AlgorithmTable algorithms = {};
  CommunicatorPlanner planner = {};
  int ranks_of_node = 1;  // nodes are named n0, n1, ...
  std::size_t stack_bytes = std::size_t{1} << 20;
};

struct SimulatedRanksResult : SimulatedWorld::Result {
  std::uint64_t worst_stack = 0;  // bytes of the stack that the deepest rank has touched
};

// Runs `body` as each of the ranks 0 to `ranks` - 1. If a rank throws, the others go on as far as
// they can, unless it had operations in flight, whose memory may be gone. If all ranks then have
// thrown the same text, that error is thrown; else the one of the lowest rank that has thrown, with
// the rank in front of the text. If nothing can move any more, throws InternalError that names the
// waiting ranks with the operations that they wait for. The ranks that have not ended are unwound
// then: their calls throw something that is no std::exception.
SimulatedRanksResult run_simulated_ranks(const Network& network, int ranks,
                                         const SimulatedRanksOptions& options,
                                         const std::function<void(SimulatedRank&)>& body);

// Returns the number of the rank whose code is running; -1 outside of it.
int running_simulated_rank();

}  // namespace trireme
