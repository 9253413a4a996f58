// The algorithms behind the collectives: ours among each other, and MPI's own.
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "comm/collectives.h"
#include "comm/mpi_communicator.h"
#include "support/mpi_test.h"

namespace trireme {
namespace {

using testing::runtime;

class AlgorithmsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (runtime().size() < 2) GTEST_SKIP() << "one rank has nothing to send";
  }
  // Wherever a buffer can be cut, it is.
  Wire wire() {
    return {.comm = *static_cast<const MPI_Comm*>(runtime().world().native_mpi()),
            .rank = runtime().rank(),
            .size = runtime().size(),
            .tag = 5,
            .synchronous = false,
            .workspace = allocator_.get(),
            .segment_bytes = 1000,
            .piece_bytes = 136};
  }
  static void run(const std::unique_ptr<Task>& task) {
    while (task->advance() != Task::Step::kDone) sched_yield();
  }

  std::shared_ptr<Allocator> allocator_ = make_caching_allocator(Device());
};

template <class T>
std::vector<T> contribution(std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto hash = static_cast<int>(
        (i * 2654435761u + 40503u * static_cast<unsigned>(runtime().rank())) % 1000);
    values[i] = T(static_cast<float>(hash - 500) / 7.0f);
  }
  return values;
}

template <class T>
Tensor wrap(std::vector<T>& values) {
  return Tensor::wrap(std::span<T>(values));
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b, std::size_t first = 0) {
  return first + b.size() <= a.size() &&
         std::memcmp(a.data() + first, b.data(), b.size() * sizeof(T)) == 0;
}

TEST_F(AlgorithmsTest, DirectPairwiseBruckAndReduceScatterGiveTheSameBits) {
  const auto check = [&]<class T>(T) {
    for (const std::size_t part : {1, 2, 61, 500, 1024}) {
      const std::size_t count = part * static_cast<std::size_t>(runtime().size());
      auto direct = contribution<T>(count);
      run(make_direct_all_reduce(wire(), wrap(direct), ReduceOp::kSum));
      auto pairwise = contribution<T>(count);
      run(make_pairwise_all_reduce(wire(), wrap(pairwise), ReduceOp::kSum));
      EXPECT_TRUE(same_bits(direct, pairwise)) << count;
      auto bruck = contribution<T>(count);
      run(make_bruck_all_reduce(wire(), wrap(bruck), ReduceOp::kSum));
      EXPECT_TRUE(same_bits(direct, bruck)) << count;
      auto input = contribution<T>(count);
      std::vector<T> own(part);
      run(make_reduce_scatter(wire(), wrap(input), wrap(own), ReduceOp::kSum));
      EXPECT_TRUE(same_bits(direct, own, part * static_cast<std::size_t>(runtime().rank())))
          << count;
    }
  };
  check(float());
  check(BFloat16());
  check(double());
}

TEST_F(AlgorithmsTest, ATreeReducesIntegers) {
  for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
    for (const std::size_t count : {0, 1, 7, 1000}) {
      std::vector<std::int64_t> direct(count);
      for (std::size_t i = 0; i < count; ++i) {
        const auto scattered = (i + 1) * 2654435761u * static_cast<unsigned>(runtime().rank() + 1);
        direct[i] = static_cast<std::int64_t>(scattered % 1000) - 500;
      }
      auto tree = direct;
      run(make_direct_all_reduce(wire(), wrap(direct), op));
      run(make_tree_all_reduce(wire(), wrap(tree), op));
      EXPECT_EQ(tree, direct);
    }
  }
}

TEST_F(AlgorithmsTest, BruckGathersInRankOrder) {
  for (const std::size_t part : {0, 1, 500}) {
    auto own = contribution<float>(part);
    std::vector<float> expected(part * static_cast<std::size_t>(runtime().size()));
    auto gathered = expected;
    run(make_all_gather(wire(), wrap(own), wrap(expected)));
    run(make_bruck_all_gather(wire(), wrap(own), wrap(gathered)));
    EXPECT_EQ(gathered, expected);
  }
}

TEST_F(AlgorithmsTest, MessagesAreCutIntoPieces) {
  const std::size_t count = 5000;
  auto data = contribution<float>(count);
  run(make_broadcast(wire(), wrap(data), 1));
  std::vector<float> all(count * static_cast<std::size_t>(runtime().size()));
  run(make_all_gather(wire(), wrap(data), wrap(all)));
  for (int rank = 0; rank < runtime().size(); ++rank) {
    EXPECT_TRUE(same_bits(all, data, static_cast<std::size_t>(rank) * count)) << rank;
  }
}

// A communicator of its own that leaves everything to MPI's algorithms.
TEST_F(AlgorithmsTest, TheLibrarysOwn) {
  FlightRecorder recorder;
  ProgressEngine engine(recorder);
  std::vector<AlgorithmTable::Rule> rules;
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
        Collective::kBroadcast, Collective::kAllToAll}) {
    rules.push_back({collective, std::size_t{1} << 40, Algorithm::kLibrary});
  }
  const AlgorithmTable table(rules);
  std::vector<int> members(static_cast<std::size_t>(runtime().size()));
  std::iota(members.begin(), members.end(), 0);
  const auto library =
      make_mpi_communicator({engine, *allocator_, table, false}, "library", members,
                            runtime().rank(), 77, OwnedComm::duplicate(MPI_COMM_WORLD));
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
  auto bf16 = contribution<BFloat16>(100);
  auto expected_bf16 = bf16;
  library->all_reduce(Stream(), wrap(bf16), ReduceOp::kSum).wait_host();
  ours.all_reduce(Stream(), wrap(expected_bf16), ReduceOp::kSum).wait_host();
  EXPECT_TRUE(same_bits(bf16, expected_bf16));
  auto fp16 = contribution<Half>(100);
  auto expected_fp16 = fp16;
  library->all_reduce(Stream(), wrap(fp16), ReduceOp::kSum).wait_host();
  ours.all_reduce(Stream(), wrap(expected_fp16), ReduceOp::kSum).wait_host();
  EXPECT_TRUE(same_bits(fp16, expected_fp16));
}

}  // namespace
}  // namespace trireme
