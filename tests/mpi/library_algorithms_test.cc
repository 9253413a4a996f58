// MPI's own algorithms behind the collectives.
#include <cstdint>
#include <memory>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>

#include "comm/mpi/mpi_communicator.h"
#include "support/comm_values.h"
#include "support/mpi_test.h"

namespace trireme {
namespace {

using testing::runtime;
using testing::same_bits;
using testing::values;
using testing::wrap;

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
