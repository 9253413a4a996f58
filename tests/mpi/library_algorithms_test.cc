// MPI's own algorithms behind the collectives: by name, and as a table has them.
#include <algorithm>
#include <cstdint>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "trireme/comm/collective_tasks.h"
#include "trireme/comm/native_collectives.h"

#include "comm/library_task.h"
#include "comm/mpi_communicator.h"
#include "comm/mpi_transport.h"
#include "support/comm_values.h"
#include "support/mpi_test.h"

namespace trireme {
namespace {

using testing::all_reduced;
using testing::runtime;
using testing::same_bits;
using testing::values;
using testing::wrap;

// The value of MPICH's variable for a collective; 0 where there is none.
int library_variable(Collective collective) {
  const char* name = nullptr;
  switch (collective) {
    case Collective::kAllReduce:
      name = "MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM";
      break;
    case Collective::kReduceScatter:
      name = "MPIR_CVAR_IREDUCE_SCATTER_BLOCK_INTRA_ALGORITHM";
      break;
    case Collective::kAllGather:
      name = "MPIR_CVAR_IALLGATHER_INTRA_ALGORITHM";
      break;
    case Collective::kBroadcast:
      name = "MPIR_CVAR_IBCAST_INTRA_ALGORITHM";
      break;
    case Collective::kAllToAll:
      name = "MPIR_CVAR_IALLTOALL_INTRA_ALGORITHM";
      break;
    case Collective::kExchange:
      return 0;
  }
  int provided = 0, index = 0, count = 0, value = 0;
  MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided);
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  if (MPI_T_cvar_get_index(name, &index) == MPI_SUCCESS &&
      MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) == MPI_SUCCESS) {
    MPI_T_cvar_read(handle, &value);
    MPI_T_cvar_handle_free(&handle);
  }
  return value;
}

// What MPICH 4.0 has of the four for each collective.
bool mpich_has(Collective collective, Algorithm algorithm) {
  switch (collective) {
    case Collective::kReduceScatter:
      return algorithm == Algorithm::kLibraryDoubling || algorithm == Algorithm::kLibraryHalving;
    case Collective::kAllToAll:
      return algorithm == Algorithm::kLibraryRing || algorithm == Algorithm::kLibraryTree;
    default:
      return collective != Collective::kExchange;
  }
}

using Integers = std::vector<std::int32_t>;  // so that the order of a sum does not matter
constexpr int kPart = 500;

// Posts a collective of MPI with so many elements for each rank; broadcasts are from the last one.
int start_of_mpi(Collective collective, const MpiGroup& group, Integers& in, Integers& out,
                 MPI_Request* request) {
  const int part = kPart, all = kPart * group.size;
  const MPI_Datatype type = MPI_INT32_T;
  switch (collective) {
    case Collective::kAllReduce:
      return MPI_Iallreduce(MPI_IN_PLACE, out.data(), all, type, MPI_SUM, group.comm, request);
    case Collective::kReduceScatter:
      return MPI_Ireduce_scatter_block(in.data(), out.data(), part, type, MPI_SUM, group.comm,
                                       request);
    case Collective::kAllGather:
      return MPI_Iallgather(in.data(), part, type, out.data(), part, type, group.comm, request);
    case Collective::kBroadcast:
      return MPI_Ibcast(out.data(), all, type, group.size - 1, group.comm, request);
    default:
      return MPI_Ialltoall(in.data(), part, type, out.data(), part, type, group.comm, request);
  }
}

// What it must bring.
Integers brought(Collective collective, const MpiGroup& group) {
  const int all = kPart * group.size, mine = kPart * group.rank;
  switch (collective) {
    case Collective::kAllReduce:
      return all_reduced<std::int32_t>(group.size, all, ReduceOp::kSum);
    case Collective::kReduceScatter:
      return all_reduced<std::int32_t>(group.size, kPart, ReduceOp::kSum, mine);
    case Collective::kBroadcast:
      return values<std::int32_t>(group.size - 1, all);
    default:
      break;
  }
  Integers result;
  for (int from = 0; from < group.size; ++from) {
    const int first = collective == Collective::kAllGather ? 0 : mine;
    const Integers part = values<std::int32_t>(from, kPart, first);
    result.insert(result.end(), part.begin(), part.end());
  }
  return result;
}

// Each of MPI's algorithms brings what it should, and its control variable is set for a start
// alone.
TEST(LibraryAlgorithms, ByName) {
  if (runtime().size() < 2) GTEST_SKIP() << "a world of one rank has no traffic";
  const MpiGroup group{.comm = *static_cast<const MPI_Comm*>(runtime().world().native_mpi()),
                       .rank = runtime().rank(),
                       .size = runtime().size()};
  std::string version(MPI_MAX_LIBRARY_VERSION_STRING, ' ');
  int length = 0;
  MPI_Get_library_version(version.data(), &length);
  const bool is_known = version.find("MPICH Version:\t4.0") != std::string::npos;
  if (is_known) {
    EXPECT_EQ(library_algorithms(Collective::kReduceScatter),
              (std::vector{Algorithm::kLibrary, Algorithm::kLibraryDoubling,
                           Algorithm::kLibraryHalving}));
  }
  EXPECT_TRUE(library_algorithms(Collective::kExchange).empty());
  for (const Algorithm algorithm : kAlgorithms) {
    if (!is_library(algorithm)) continue;
    for (const Collective collective : kCollectives) {
      const auto what = std::string(name_of(collective)) + " by " +
                        std::string(name_of(algorithm)) + " among " + std::to_string(group.size);
      const bool named = algorithm != Algorithm::kLibrary && mpich_has(collective, algorithm);
      if (is_known) {
        EXPECT_EQ(LibraryChoice(collective, algorithm).takes_effect(), named) << what;
        EXPECT_EQ(
            library_can_take(collective, algorithm),
            named || (algorithm == Algorithm::kLibrary && collective != Collective::kExchange))
            << what;
      }
      if (collective == Collective::kExchange) continue;
      Integers in = values<std::int32_t>(group.rank, kPart * group.size);
      Integers out = in;
      int during = 0;
      const auto task =
          make_library_task(collective, algorithm,
                            [&](MPI_Request* request) {
                              during = library_variable(collective);
                              return start_of_mpi(collective, group, in, out, request);
                            },
                            {wrap(in), wrap(out)});
      while (task->advance() != Task::Step::kDone) sched_yield();
      if (is_known) {
        EXPECT_EQ(during != 0, named) << what;
      }
      EXPECT_EQ(library_variable(collective), 0) << what;
      if (collective == Collective::kReduceScatter) out.resize(kPart);
      EXPECT_EQ(out, brought(collective, group)) << what;
    }
  }
}

// A communicator of its own that leaves everything to MPI's algorithms.
TEST(LibraryAlgorithms, AsATableNamesThem) {
  if (runtime().size() < 2) GTEST_SKIP() << "a world of one rank has no traffic";
  const std::shared_ptr<Allocator> allocator = make_caching_allocator(Device());
  FlightRecorder recorder;
  ProgressEngine engine(recorder);
  std::vector<AlgorithmTable::Rule> rules;
  for (const Collective collective : kCollectives) {
    rules.push_back({collective, std::size_t{1} << 40, Algorithm::kLibrary});
  }
  const AlgorithmTable table(rules);
  std::vector<int> members(static_cast<std::size_t>(runtime().size()));
  std::iota(members.begin(), members.end(), 0);
  const auto library =
      make_mpi_communicator({engine, *allocator, false}, "library", members, runtime().rank(), 77,
                            OwnedComm::duplicate(MPI_COMM_WORLD),
                            std::make_shared<CommunicatorPlan>(CommunicatorPlan{table}));
  Communicator& ours = runtime().world();

  const auto size = static_cast<std::size_t>(runtime().size());
  std::vector<std::int64_t> whole(12 * size);
  std::iota(whole.begin(), whole.end(), 100 * runtime().rank());
  auto expected = whole;
  auto result = whole;
  std::vector<std::int64_t> part(12);
  std::vector<std::int64_t> expected_part(12);

  library->all_reduce(Stream(), wrap(result), ReduceOp::kMin).wait_host();
  ours.all_reduce(Stream(), wrap(expected), ReduceOp::kMin).wait_host();
  EXPECT_EQ(result, expected);
  library->reduce_scatter(Stream(), wrap(whole), wrap(part), ReduceOp::kSum).wait_host();
  ours.reduce_scatter(Stream(), wrap(whole), wrap(expected_part), ReduceOp::kSum).wait_host();
  EXPECT_EQ(part, expected_part);
  library->all_gather(Stream(), wrap(part), wrap(result)).wait_host();
  ours.all_gather(Stream(), wrap(part), wrap(expected)).wait_host();
  EXPECT_EQ(result, expected);
  library->all_to_all(Stream(), wrap(whole), wrap(result)).wait_host();
  ours.all_to_all(Stream(), wrap(whole), wrap(expected)).wait_host();
  EXPECT_EQ(result, expected);
  library->broadcast(Stream(), wrap(result), 1).wait_host();
  ours.broadcast(Stream(), wrap(expected), 1).wait_host();
  EXPECT_EQ(result, expected);

  // MPI knows no bf16 and no fp16: ours carry them.
  auto bf16 = values<BFloat16>(runtime().rank(), 100);
  auto expected_bf16 = bf16;
  library->all_reduce(Stream(), wrap(bf16), ReduceOp::kSum).wait_host();
  ours.all_reduce(Stream(), wrap(expected_bf16), ReduceOp::kSum).wait_host();
  EXPECT_TRUE(same_bits(bf16, expected_bf16));
  auto fp16 = values<Half>(runtime().rank(), 100);
  auto expected_fp16 = fp16;
  library->all_reduce(Stream(), wrap(fp16), ReduceOp::kSum).wait_host();
  ours.all_reduce(Stream(), wrap(expected_fp16), ReduceOp::kSum).wait_host();
  EXPECT_TRUE(same_bits(fp16, expected_fp16));
}

}  // namespace
}  // namespace trireme
