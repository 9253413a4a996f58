// The algorithms behind the collectives: ours among each other, and MPI's own.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <string>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>

#include "trireme/comm/collective_tasks.h"

#include "trireme/comm/sum_tree.h"
#include "comm/library_task.h"
#include "comm/mpi_communicator.h"
#include "comm/mpi_transport.h"
#include "support/comm_values.h"
#include "support/mpi_test.h"

namespace trireme {
namespace {

constexpr int kTag = 5;  // of this file's messages
struct {
  std::size_t messages = 0, bytes = 0;
} sent;  // with that tag

using testing::runtime;
using testing::wrap;

class AlgorithmsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (runtime().size() < 2) GTEST_SKIP() << "one rank has nothing to send";
  }
  // Wherever a buffer can be cut, it is.
  MpiGroup group() {
    return {.comm = *static_cast<const MPI_Comm*>(runtime().world().native_mpi()),
            .rank = runtime().rank(),
            .size = runtime().size(),
            .tag = kTag,
            .synchronous = false,
            .workspace = allocator_.get(),
            .segment_bytes = 3000,
            .piece_bytes = 600};
  }
  // Calls body(group) among the first ranks, as many as there are; of nine also among 3, 5 and 7,
  // for which there are no launches.
  template <class Body>
  void among_ranks(const Body& body) {
    std::vector<int> sizes{runtime().size()};
    if (runtime().size() == 9) sizes = {3, 5, 7, 9};
    for (const int size : sizes) {
      MpiGroup part = group();
      const bool here = runtime().rank() < size;
      MPI_Comm_split(group().comm, here ? 0 : MPI_UNDEFINED, runtime().rank(), &part.comm);
      if (!here) continue;
      part.size = size;
      part.blocks = dealt_in_turn(size);
      body(part);
      MPI_Comm_free(&part.comm);
    }
  }
  // Neighbours are on different nodes, and these in two leaves: no subtree lies in one block.
  static std::shared_ptr<const RankBlocks> dealt_in_turn(int ranks) {
    std::vector<int> nodes, leaves;
    for (int rank = 0; rank < ranks; ++rank) {
      nodes.push_back(rank % std::max(ranks / 2, 2));
      leaves.push_back(nodes.back() % 2);
    }
    return std::make_shared<const RankBlocks>(
        ranks, std::vector<std::vector<int>>{std::move(nodes), std::move(leaves)});
  }
  static void run(const std::unique_ptr<Task>& task) {
    while (task->advance() != Task::Step::kDone) sched_yield();
  }
  static void run(Collective collective, Algorithm algorithm, const MpiGroup& group,
                  Operands operands) {
    run(make_collective(collective, algorithm, std::make_unique<MpiTransport>(group),
                        std::move(operands)));
  }

  std::shared_ptr<Allocator> allocator_ = make_caching_allocator(Device());
};

// Sums that depend on the order, and zeroes of both signs, which a maximum tells apart by it.
template <class T>
std::vector<T> contribution_of(int rank, std::size_t count) {
  std::vector<T> values(count);
  for (std::size_t i = 0; i < count; ++i) {
    const auto hash =
        static_cast<int>((i * 2654435761u + 40503u * static_cast<unsigned>(rank)) % 1000) - 500;
    if constexpr (std::is_integral_v<T>) {
      values[i] = static_cast<T>(hash);
    } else if (i % 5 == 4) {
      values[i] = T(hash % 2 == 0 ? 0.0f : -0.0f);
    } else {
      values[i] = T(static_cast<float>(hash) / 7.0f);
    }
  }
  return values;
}

template <class T>
std::vector<T> contribution(std::size_t count) {
  return contribution_of<T>(runtime().rank(), count);
}

template <class T>
bool same_bits(const std::vector<T>& a, const std::vector<T>& b, std::size_t first = 0) {
  return first + b.size() <= a.size() &&
         (b.empty() || std::memcmp(a.data() + first, b.data(), b.size() * sizeof(T)) == 0);
}

template <class T>
std::vector<T> along_tree(int ranks, std::size_t count, ReduceOp op) {
  std::vector<std::vector<T>> all;
  for (int rank = 0; rank < ranks; ++rank) {
    all.push_back(contribution_of<T>(rank, count));
  }
  std::vector<T> result;
  for (std::size_t i = 0; i < count; ++i) {
    std::vector<T> contributions;
    for (const auto& one : all) contributions.push_back(one[i]);
    result.push_back(testing::reduced_along_tree(contributions, op));
  }
  return result;
}

// The value of MPICH's variable for all-reduces; 0 where there is none.
int all_reduce_variable() {
  int provided = 0, index = 0, count = 0, value = 0;
  MPI_T_init_thread(MPI_THREAD_MULTIPLE, &provided);
  MPI_T_cvar_handle handle = MPI_T_CVAR_HANDLE_NULL;
  if (MPI_T_cvar_get_index("MPIR_CVAR_IALLREDUCE_INTRA_ALGORITHM", &index) == MPI_SUCCESS &&
      MPI_T_cvar_handle_alloc(index, nullptr, &handle, &count) == MPI_SUCCESS) {
    MPI_T_cvar_read(handle, &value);
    MPI_T_cvar_handle_free(&handle);
  }
  return value;
}

constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};

template <class T>
class Reductions : public AlgorithmsTest {};
using Types =
    ::testing::Types<float, BFloat16, Half, double, std::int32_t, std::int64_t, std::uint8_t>;
TYPED_TEST_SUITE(Reductions, Types);

TYPED_TEST(Reductions, EveryAllReduceAddsAlongTheTree) {
  this->among_ranks([](const MpiGroup& group) {
    for (const std::size_t count : {0, 1, 200, 901}) {
      for (const ReduceOp op : kOps) {
        if (op != ReduceOp::kSum && count != 200) continue;
        const auto expected = along_tree<TypeParam>(group.size, count, op);
        for (const Algorithm algorithm : algorithms_of(Collective::kAllReduce)) {
          auto data = contribution<TypeParam>(count);
          AlgorithmsTest::run(Collective::kAllReduce, algorithm, group,
                              {.output = wrap(data), .op = op});
          EXPECT_TRUE(keeps_order(algorithm) ? same_bits(data, expected)
                                             : testing::nearly_same(data, expected))
              << name_of(algorithm) << " among " << group.size << ", operation "
              << static_cast<int>(op) << ", " << count << " elements";
        }
      }
    }
  });
}

TYPED_TEST(Reductions, EveryReduceScatterAddsAlongTheTree) {
  this->among_ranks([](const MpiGroup& group) {
    for (const std::size_t part : {0, 1, 161}) {
      const std::size_t count = part * static_cast<std::size_t>(group.size);
      for (const ReduceOp op : kOps) {
        if (op != ReduceOp::kSum && part == 0) continue;
        const auto expected = along_tree<TypeParam>(group.size, count, op);
        for (const Algorithm algorithm : algorithms_of(Collective::kReduceScatter)) {
          auto input = contribution_of<TypeParam>(group.rank, count);
          std::vector<TypeParam> own(part);
          AlgorithmsTest::run(Collective::kReduceScatter, algorithm, group,
                              {.input = wrap(input), .output = wrap(own), .op = op});
          const auto begin = expected.begin() + static_cast<std::ptrdiff_t>(part) * group.rank;
          const std::vector<TypeParam> mine(begin, begin + static_cast<std::ptrdiff_t>(part));
          EXPECT_TRUE(keeps_order(algorithm) ? same_bits(mine, own)
                                             : testing::nearly_same(mine, own))
              << name_of(algorithm) << ", " << part << " among " << group.size;
          EXPECT_TRUE(same_bits(input, contribution_of<TypeParam>(group.rank, count)))
              << name_of(algorithm);
        }
      }
    }
  });
}

// What DoublingPlan says is what is sent: partial results of bf16 in fp32.
TEST_F(AlgorithmsTest, DoublingSendsAsMuchAsItsPlan) {
  among_ranks([](MpiGroup group) {
    group.piece_bytes = std::size_t{1} << 20;
    const DoublingPlan plan(group.rank, group.size);
    constexpr std::size_t kCount = 1000;
    auto data = contribution<BFloat16>(kCount);
    sent = {};
    run(Collective::kAllReduce, Algorithm::kDoubling, group,
        {.output = wrap(data), .op = ReduceOp::kSum});
    const std::size_t to_partner = plan.has_partner() ? 1 : 0;
    EXPECT_EQ(sent.messages, plan.rounds.size() + to_partner);
    EXPECT_EQ(sent.bytes, plan.rounds.size() * 4 * kCount + to_partner * 2 * kCount);
  });
}

// Each of q terms sends q - 1 of q parts of the buffer in the halving and again in the doubling.
TEST_F(AlgorithmsTest, HalvingSendsTwiceTheBuffer) {
  among_ranks([](MpiGroup group) {
    group.piece_bytes = group.segment_bytes = std::size_t{1} << 20;
    const DoublingPlan plan(group.rank, group.size);
    constexpr std::size_t kCount = 1024;
    auto data = contribution<float>(kCount);
    sent = {};
    run(Collective::kAllReduce, Algorithm::kHalving, group,
        {.output = wrap(data), .op = ReduceOp::kSum});
    const auto terms = static_cast<std::size_t>(SumTree(group.size).terms());
    const std::size_t in_rounds = plan.has_term ? 2 * 4 * (kCount - kCount / terms) : 0;
    const std::size_t to_partner = plan.has_partner() ? 4 * kCount : 0;
    EXPECT_EQ(sent.bytes, in_rounds + to_partner);
    EXPECT_EQ(sent.messages, 2 * plan.rounds.size() + (plan.has_partner() ? 1 : 0));
  });
}

TEST_F(AlgorithmsTest, EveryAllGatherIsInRankOrder) {
  among_ranks([](const MpiGroup& group) {
    for (const std::size_t part : {0, 1, 500}) {
      std::vector<float> expected;
      for (int rank = 0; rank < group.size; ++rank) {
        const auto one = contribution_of<float>(rank, part);
        expected.insert(expected.end(), one.begin(), one.end());
      }
      for (const Algorithm algorithm : algorithms_of(Collective::kAllGather)) {
        auto own = contribution<float>(part);
        std::vector<float> gathered(expected.size());
        run(Collective::kAllGather, algorithm, group,
            {.input = wrap(own), .output = wrap(gathered)});
        EXPECT_TRUE(same_bits(gathered, expected)) << name_of(algorithm);
      }
    }
  });
}

TEST_F(AlgorithmsTest, EveryBroadcastAndAllToAllBringsTheData) {
  among_ranks([](const MpiGroup& group) {
    for (const std::size_t part : {0, 1, 300}) {
      const std::size_t count = part * static_cast<std::size_t>(group.size);
      const int root = group.size - 1;
      for (const Algorithm algorithm : algorithms_of(Collective::kBroadcast)) {
        auto data = contribution<float>(part);
        run(Collective::kBroadcast, algorithm, group, {.output = wrap(data), .root = root});
        EXPECT_TRUE(same_bits(data, contribution_of<float>(root, part))) << name_of(algorithm);
      }
      std::vector<float> expected;
      for (int from = 0; from < group.size; ++from) {
        const auto all = contribution_of<float>(from, count);
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(part) * group.rank;
        expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(part));
      }
      for (const Algorithm algorithm : algorithms_of(Collective::kAllToAll)) {
        auto data = contribution<float>(count);
        std::vector<float> result(count);
        run(Collective::kAllToAll, algorithm, group, {.input = wrap(data), .output = wrap(result)});
        EXPECT_TRUE(same_bits(result, expected)) << name_of(algorithm);
      }
    }
  });
}

TEST_F(AlgorithmsTest, MessagesAreCutIntoPieces) {
  const std::size_t count = 5000;
  auto data = contribution<float>(count);
  run(Collective::kBroadcast, Algorithm::kPairwise, group(), {.output = wrap(data), .root = 1});
  std::vector<float> all(count * static_cast<std::size_t>(runtime().size()));
  run(Collective::kAllGather, Algorithm::kPairwise, group(),
      {.input = wrap(data), .output = wrap(all)});
  for (int rank = 0; rank < runtime().size(); ++rank) {
    EXPECT_TRUE(same_bits(all, data, static_cast<std::size_t>(rank) * count)) << rank;
  }
}

// Partial results of a rounded sum travel as bf16, and all ranks get the same.
TEST_F(AlgorithmsTest, RoundedSumsTravelInTheTensorsType) {
  among_ranks([](MpiGroup group) {
    group.piece_bytes = group.segment_bytes = std::size_t{1} << 20;
    constexpr std::size_t kCount = 1024;
    const auto expected = along_tree<BFloat16>(group.size, kCount, ReduceOp::kSum);
    for (const Algorithm algorithm : algorithms_of(Collective::kAllReduce)) {
      std::size_t bytes[2];
      for (const bool rounds : {false, true}) {
        auto data = contribution<BFloat16>(kCount);
        sent = {};
        run(Collective::kAllReduce, algorithm, group,
            {.output = wrap(data), .op = rounds ? ReduceOp::kRoundedSum : ReduceOp::kSum});
        bytes[rounds ? 1 : 0] = sent.bytes;
        // Partial sums are below 72 size, and each of size roundings loses up to 2^-8 of one.
        double worst = 0.0;
        for (std::size_t i = 0; i < kCount; ++i) {
          worst = std::max(worst, std::abs(static_cast<double>(static_cast<float>(data[i])) -
                                           static_cast<double>(static_cast<float>(expected[i]))));
        }
        EXPECT_LE(worst, 72.0 / 256 * group.size * group.size) << name_of(algorithm);
        auto first = data;
        run(Collective::kBroadcast, Algorithm::kBinomial, group, {.output = wrap(first)});
        EXPECT_TRUE(same_bits(first, data)) << name_of(algorithm);
      }
      const bool sends_partials = group.size >= 4 && DoublingPlan(group.rank, group.size).has_term;
      if (algorithm == Algorithm::kDoubling && sends_partials) {
        EXPECT_LT(bytes[1], bytes[0]);
      }
    }
  });
}

// The control variables of MPI's algorithms are set for a start alone.
TEST_F(AlgorithmsTest, TheLibrarysAlgorithmsByName) {
  const MpiGroup group = this->group();
  for (const Algorithm algorithm : kAlgorithms) {
    if (!is_library(algorithm)) continue;
    std::vector<float> data(1000, static_cast<float>(group.rank + 1));
    run(make_library_task(Collective::kAllReduce, algorithm,
                          [&](MPI_Request* request) {
                            return MPI_Iallreduce(MPI_IN_PLACE, data.data(), 1000, MPI_FLOAT,
                                                  MPI_SUM, group.comm, request);
                          },
                          {wrap(data)}));
    EXPECT_FLOAT_EQ(data[7], static_cast<float>(group.size * (group.size + 1) / 2));
    for (const Collective collective : kCollectives) {
      const LibraryChoice choice(collective, algorithm);
      const bool named = algorithm != Algorithm::kLibrary && collective != Collective::kExchange;
      std::string version(MPI_MAX_LIBRARY_VERSION_STRING, ' ');
      int length = 0;
      MPI_Get_library_version(version.data(), &length);
      if (version.find("MPICH Version:\t4.0") == std::string::npos) continue;
      if (!named) {
        EXPECT_FALSE(choice.takes_effect());
      }
      if (named && collective == Collective::kAllReduce) {
        EXPECT_TRUE(choice.takes_effect()) << name_of(algorithm);
        EXPECT_NE(all_reduce_variable(), 0);
      }
    }
    EXPECT_EQ(all_reduce_variable(), 0) << name_of(algorithm);
  }
}

// A communicator of its own that leaves everything to MPI's algorithms.
TEST_F(AlgorithmsTest, TheLibrarysOwn) {
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
      make_mpi_communicator({engine, *allocator_, false}, "library", members, runtime().rank(), 77,
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

// What MPI's profiling interface is for.
extern "C" int MPI_Isend(const void* data, int count, MPI_Datatype type, int to, int tag,
                         MPI_Comm comm, MPI_Request* request) {
  if (tag == trireme::kTag) {
    ++trireme::sent.messages;
    trireme::sent.bytes += static_cast<std::size_t>(count);  // of bytes
  }
  return PMPI_Isend(data, count, type, to, tag, comm, request);
}
