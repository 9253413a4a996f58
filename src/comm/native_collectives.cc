#include "trireme/comm/native_collectives.h"

#include <limits>

#include <fmt/format.h>
#include <mpi.h>

#include "trireme/base/error.h"

#include "comm/mpi/mpi_util.h"

namespace trireme {
namespace {

int count_of(std::int64_t elements) {
  TRIREME_CHECK(elements <= std::numeric_limits<int>::max(),
                fmt::format("{} elements in one call of MPI", elements));
  return static_cast<int>(elements);
}

// What both kinds of calls take.
struct Call {
  const void* in;
  void* out;
  int count;  // elements of a part, or of the whole for all_reduce and broadcast
  int root;
  MPI_Comm comm;
};

int start(Collective collective, const Call& c, MPI_Request* request) {
  switch (collective) {
    case Collective::kAllReduce:
      return MPI_Iallreduce(MPI_IN_PLACE, c.out, c.count, MPI_FLOAT, MPI_SUM, c.comm, request);
    case Collective::kReduceScatter:
      return MPI_Ireduce_scatter_block(c.in, c.out, c.count, MPI_FLOAT, MPI_SUM, c.comm, request);
    case Collective::kAllGather:
      return MPI_Iallgather(c.in, c.count, MPI_FLOAT, c.out, c.count, MPI_FLOAT, c.comm, request);
    case Collective::kBroadcast:
      return MPI_Ibcast(c.out, c.count, MPI_FLOAT, c.root, c.comm, request);
    case Collective::kAllToAll:
      return MPI_Ialltoall(c.in, c.count, MPI_FLOAT, c.out, c.count, MPI_FLOAT, c.comm, request);
    case Collective::kExchange:
      break;
  }
  throw InternalError("MPI has no collective exchange");
}

int run_blocking(Collective collective, const Call& c) {
  switch (collective) {
    case Collective::kAllReduce:
      return MPI_Allreduce(MPI_IN_PLACE, c.out, c.count, MPI_FLOAT, MPI_SUM, c.comm);
    case Collective::kReduceScatter:
      return MPI_Reduce_scatter_block(c.in, c.out, c.count, MPI_FLOAT, MPI_SUM, c.comm);
    case Collective::kAllGather:
      return MPI_Allgather(c.in, c.count, MPI_FLOAT, c.out, c.count, MPI_FLOAT, c.comm);
    case Collective::kBroadcast:
      return MPI_Bcast(c.out, c.count, MPI_FLOAT, c.root, c.comm);
    case Collective::kAllToAll:
      return MPI_Alltoall(c.in, c.count, MPI_FLOAT, c.out, c.count, MPI_FLOAT, c.comm);
    case Collective::kExchange:
      break;
  }
  throw InternalError("MPI has no collective exchange");
}

Call call_of(const Communicator& comm, Collective collective, const Operands& operands) {
  const bool whole = collective == Collective::kAllReduce || collective == Collective::kBroadcast;
  const bool part_is_input = collective == Collective::kAllGather;
  std::int64_t count = part_is_input ? operands.input.elements() : operands.output.elements();
  if (collective == Collective::kAllToAll) count /= comm.size();
  TRIREME_CHECK(operands.output.dtype() == DType::kF32, "MPI's own collectives carry fp32");
  return {whole ? nullptr : operands.input.raw(), operands.output.raw(), count_of(count),
          operands.root, *static_cast<const MPI_Comm*>(comm.native_mpi())};
}

}  // namespace

std::string_view name_of(NativeCall call) {
  return call == NativeCall::kBlocking ? "MPI" : "MPI, yielding";
}

void run_native(const Communicator& comm, NativeCall call, Collective collective,
                const Operands& operands) {
  const Call given = call_of(comm, collective, operands);
  if (call == NativeCall::kBlocking) {
    check_mpi(run_blocking(collective, given), "run a collective operation");
    return;
  }
  MPI_Request request = MPI_REQUEST_NULL;
  check_mpi(start(collective, given, &request), "start a collective operation");
  wait_yielding(request, "finish a collective operation");
}

}  // namespace trireme
