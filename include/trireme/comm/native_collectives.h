// MPI's own collectives, called as a program without Trireme would call them. Measurements compare
// ours with them.
#pragma once

#include <string_view>

#include "trireme/comm/collective_tasks.h"

namespace trireme {

enum class NativeCall {
  kBlocking,      // MPI_Allreduce and so on; they spin
  kTestAndYield,  // MPI_Iallreduce and so on, then MPI_Test and sched_yield() until it is done
};
std::string_view name_of(NativeCall call);  // "MPI", "MPI, yielding"

// Collective over comm. Returns when this rank's part is done. Takes fp32 tensors of the host and
// adds; one call carries less than 2^31 elements. MPI decides on algorithm and order of sums.
// Throws InternalError for kExchange.
void run_native(const Communicator& comm, NativeCall call, Collective collective,
                const Operands& operands);

}  // namespace trireme
