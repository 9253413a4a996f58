// The algorithms behind the collectives; MPI's own are in library_algorithms_test.cc.
#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <memory>
#include <type_traits>
#include <vector>

#include <gtest/gtest.h>
#include <sched.h>
#include <unistd.h>

#include "trireme/comm/collective_tasks.h"
#include "trireme/comm/sum_tree.h"

#include "comm/mpi/mpi_transport.h"
#include "support/comm_values.h"
#include "support/mpi_test.h"
#include "support/whole_product.h"

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
    if (runtime().size() < 2) GTEST_SKIP() << "a world of one rank has no traffic; see among_ranks";
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
            .worthwhile_bytes = 100,
            .piece_bytes = 600};
  }
  // Calls body(group) among the first ranks, as many as there are; of two also on one alone, which
  // the program never asks algorithms for, and of nine also among 3, 5 and 7, for which there are
  // no launches. Not among more than `most`.
  template <class Body>
  void among_ranks(const Body& body, int most = 9) {
    std::vector<int> sizes{runtime().size()};
    if (runtime().size() == 2) sizes = {1, 2};
    if (runtime().size() == 9) sizes = {3, 5, 7, 9};
    for (const int size : sizes) {
      if (size > most) continue;
      MpiGroup part = group();
      const bool here = runtime().rank() < size;
      MPI_Comm_split(group().comm, here ? 0 : MPI_UNDEFINED, runtime().rank(), &part.comm);
      if (here) {
        part.size = size;
        part.blocks = dealt_in_turn(size);
        body(part);
        MPI_Comm_free(&part.comm);
      }
      await_all();
    }
  }
  // The ranks without work leave the processors to the others, which MPI_Barrier would not.
  static void await_all() {
    MPI_Request met = MPI_REQUEST_NULL;
    MPI_Ibarrier(*static_cast<const MPI_Comm*>(runtime().world().native_mpi()), &met);
    for (int done = 0; done == 0;) {
      MPI_Test(&met, &done, MPI_STATUS_IGNORE);
      if (done == 0) usleep(200);
    }
  }
  // Neighbours are on different nodes, and these in two leaves: no subtree lies in one block. Of
  // three ranks the first one is alone, so that rank 1 stands for both.
  static std::shared_ptr<const RankBlocks> dealt_in_turn(int ranks) {
    std::vector<int> nodes, leaves;
    for (int rank = 0; rank < ranks; ++rank) {
      nodes.push_back(ranks == 3 ? (rank + 1) / 2 : rank % std::max(ranks / 2, 2));
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

constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};

// fp32 stands for the types that are added as they are, bf16 for those that are added in another
// one; the others run among up to five ranks.
template <class T>
class AllTypes : public AlgorithmsTest {
 protected:
  template <class Body>
  void among_ranks(const Body& body) {
    constexpr bool kStandsForOthers = std::is_same_v<T, float> || std::is_same_v<T, BFloat16>;
    AlgorithmsTest::among_ranks(body, kStandsForOthers || testing::whole_product() ? 9 : 5);
  }
};
using Types =
    ::testing::Types<float, BFloat16, Half, double, std::int32_t, std::int64_t, std::uint8_t>;
TYPED_TEST_SUITE(AllTypes, Types);

TYPED_TEST(AllTypes, EveryAllReduceAddsAlongTheTree) {
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

TYPED_TEST(AllTypes, EveryReduceScatterAddsAlongTheTree) {
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

TYPED_TEST(AllTypes, EveryAllGatherIsInRankOrder) {
  this->among_ranks([](const MpiGroup& group) {
    for (const std::size_t part : {0, 1, 500}) {
      std::vector<TypeParam> expected;
      for (int rank = 0; rank < group.size; ++rank) {
        const auto one = contribution_of<TypeParam>(rank, part);
        expected.insert(expected.end(), one.begin(), one.end());
      }
      for (const Algorithm algorithm : algorithms_of(Collective::kAllGather)) {
        auto own = contribution<TypeParam>(part);
        std::vector<TypeParam> gathered(expected.size());
        AlgorithmsTest::run(Collective::kAllGather, algorithm, group,
                            {.input = wrap(own), .output = wrap(gathered)});
        EXPECT_TRUE(same_bits(gathered, expected)) << name_of(algorithm);
      }
    }
  });
}

TYPED_TEST(AllTypes, EveryBroadcastAndAllToAllBringsTheData) {
  this->among_ranks([](const MpiGroup& group) {
    for (const std::size_t part : {0, 1, 300}) {
      const std::size_t count = part * static_cast<std::size_t>(group.size);
      const int root = group.size - 1;
      for (const Algorithm algorithm : algorithms_of(Collective::kBroadcast)) {
        auto data = contribution<TypeParam>(part);
        AlgorithmsTest::run(Collective::kBroadcast, algorithm, group,
                            {.output = wrap(data), .root = root});
        EXPECT_TRUE(same_bits(data, contribution_of<TypeParam>(root, part))) << name_of(algorithm);
      }
      std::vector<TypeParam> expected;
      for (int from = 0; from < group.size; ++from) {
        const auto all = contribution_of<TypeParam>(from, count);
        const auto begin = all.begin() + static_cast<std::ptrdiff_t>(part) * group.rank;
        expected.insert(expected.end(), begin, begin + static_cast<std::ptrdiff_t>(part));
      }
      for (const Algorithm algorithm : algorithms_of(Collective::kAllToAll)) {
        auto data = contribution<TypeParam>(count);
        std::vector<TypeParam> result(count);
        AlgorithmsTest::run(Collective::kAllToAll, algorithm, group,
                            {.input = wrap(data), .output = wrap(result)});
        EXPECT_TRUE(same_bits(result, expected)) << name_of(algorithm);
      }
    }
  });
}

// What DoublingPlan says is what is sent: partial results of bf16 in fp32.
TEST_F(AlgorithmsTest, DoublingSendsAsMuchAsItsPlan) {
  among_ranks([](MpiGroup group) {
    group.piece_bytes = std::size_t{1} << 20;
    const DoublingPlan plan(group.rank, SumTree(group.size, group.blocks.get()));
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
    const DoublingPlan plan(group.rank, SumTree(group.size, group.blocks.get()));
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
      const bool sends_partials =
          group.size >= 4 &&
          DoublingPlan(group.rank, SumTree(group.size, group.blocks.get())).has_term;
      if (algorithm == Algorithm::kDoubling && sends_partials) {
        EXPECT_LT(bytes[1], bytes[0]);
      }
    }
  });
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
