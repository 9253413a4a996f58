// Communicators on 1, 2, 4, 6 and 8 ranks, against results computed on one rank.
#include <algorithm>
#include <cmath>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <gtest/gtest.h>
#include <unistd.h>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/comm/process_grid.h"

#include "support/comm_values.h"
#include "support/mpi_test.h"

namespace trireme {
namespace {

using testing::all_reduced;
using testing::runtime;
using testing::same_bits;
using testing::value_of;
using testing::values;
using testing::wrap;

const std::vector<std::int64_t> kCounts = {0, 1, 3, 7, 64, 1000, 4097, 20011};

template <class T>
class Collectives : public ::testing::Test {};
using Types =
    ::testing::Types<float, BFloat16, Half, double, std::int32_t, std::int64_t, std::uint8_t>;
TYPED_TEST_SUITE(Collectives, Types);

TYPED_TEST(Collectives, AllReduce) {
  Communicator& world = runtime().world();
  for (const std::int64_t count : kCounts) {
    for (const ReduceOp op : {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin}) {
      auto data = values<TypeParam>(world.rank(), count);
      world.all_reduce(Stream(), wrap(data), op).wait_host();
      EXPECT_TRUE(same_bits(data, all_reduced<TypeParam>(world.size(), count, op))) << count;
    }
  }
}

TYPED_TEST(Collectives, ReduceScatter) {
  Communicator& world = runtime().world();
  for (const std::int64_t count : kCounts) {
    auto input = values<TypeParam>(world.rank(), count * world.size());
    std::vector<TypeParam> output(static_cast<std::size_t>(count));
    world.reduce_scatter(Stream(), wrap(input), wrap(output), ReduceOp::kSum).wait_host();
    EXPECT_TRUE(same_bits(
        output, all_reduced<TypeParam>(world.size(), count, ReduceOp::kSum, count * world.rank())))
        << count;
  }
}

TYPED_TEST(Collectives, AllGather) {
  Communicator& world = runtime().world();
  for (const std::int64_t count : kCounts) {
    std::vector<TypeParam> expected;
    for (int rank = 0; rank < world.size(); ++rank) {
      const auto part = values<TypeParam>(rank, count);
      expected.insert(expected.end(), part.begin(), part.end());
    }
    auto input = values<TypeParam>(world.rank(), count);
    std::vector<TypeParam> output(expected.size());
    world.all_gather(Stream(), wrap(input), wrap(output)).wait_host();
    EXPECT_TRUE(same_bits(output, expected)) << count;

    std::vector<TypeParam> in_place(expected.size());
    std::ranges::copy(input, in_place.begin() + count * world.rank());
    const Tensor whole = wrap(in_place);
    world
        .all_gather(Stream(), whole.flat_range(count * world.rank(), count * (world.rank() + 1)),
                    whole)
        .wait_host();
    EXPECT_TRUE(same_bits(in_place, expected)) << count;
  }
}

TYPED_TEST(Collectives, Broadcast) {
  Communicator& world = runtime().world();
  for (const std::int64_t count : kCounts) {
    for (int root = 0; root < world.size(); ++root) {
      auto data = values<TypeParam>(world.rank(), count);
      world.broadcast(Stream(), wrap(data), root).wait_host();
      EXPECT_TRUE(same_bits(data, values<TypeParam>(root, count))) << count << " from " << root;
    }
  }
}

TYPED_TEST(Collectives, AllToAll) {
  Communicator& world = runtime().world();
  for (const std::int64_t count : kCounts) {
    auto input = values<TypeParam>(world.rank(), count * world.size());
    std::vector<TypeParam> output(input.size());
    std::vector<TypeParam> expected;
    for (int rank = 0; rank < world.size(); ++rank) {
      const auto part = values<TypeParam>(rank, count, count * world.rank());
      expected.insert(expected.end(), part.begin(), part.end());
    }
    world.all_to_all(Stream(), wrap(input), wrap(output)).wait_host();
    EXPECT_TRUE(same_bits(output, expected)) << count;
  }
}

TEST(Comm, NanWinsMaximum) {
  Communicator& world = runtime().world();
  std::vector<float> data(3, static_cast<float>(world.rank()));
  if (world.rank() == world.size() - 1) data[1] = std::nanf("");
  world.all_reduce_host(std::span<float>(data), ReduceOp::kMax);
  EXPECT_EQ(data[0], static_cast<float>(world.size() - 1));
  EXPECT_TRUE(std::isnan(data[1]));
}

TEST(Comm, AgreeIsTheSameVerdictEverywhere) {
  Communicator& world = runtime().world();
  EXPECT_TRUE(world.agree(true));
  EXPECT_FALSE(world.agree(false));
  EXPECT_FALSE(world.agree(world.rank() != world.size() - 1));
}

TEST(Comm, BroadcastText) {
  Communicator& world = runtime().world();
  const int root = world.size() - 1;
  EXPECT_EQ(world.broadcast_text(world.rank() == root ? "three banks" : "nothing", root),
            "three banks");
  EXPECT_EQ(world.broadcast_text(world.rank() == root ? "" : "nothing", root), "");
}

TEST(Comm, ExchangeInARing) {
  Communicator& world = runtime().world();
  const int next = (world.rank() + 1) % world.size();
  const int previous = (world.rank() + world.size() - 1) % world.size();
  using Direction = Transfer::Direction;
  for (const std::int64_t count : kCounts) {
    auto right = values<float>(world.rank(), count);
    auto left = values<float>(world.rank() + 100, count + 1);
    std::vector<float> from_left(right.size());
    std::vector<float> from_right(left.size());
    // All send first: rendezvous sends one after the other would never end.
    world
        .exchange(Stream(), {{Direction::kSend, next, wrap(right)},
                             {Direction::kReceive, previous, wrap(from_left)}})
        .wait_host();
    world
        .exchange(Stream(), {{Direction::kSend, previous, wrap(left)},
                             {Direction::kReceive, next, wrap(from_right)}})
        .wait_host();
    EXPECT_TRUE(same_bits(from_left, values<float>(previous, count)));
    EXPECT_TRUE(same_bits(from_right, values<float>(next + 100, count + 1)));
  }
}

// Messages between two ranks keep their order, however many are queued and whatever their size.
TEST(Comm, MessagesKeepTheirOrder) {
  Communicator& world = runtime().world();
  if (world.size() < 2 || world.rank() > 1) return;
  constexpr int kMessages = 40;
  std::vector<std::vector<float>> data;
  std::vector<Work> pending;
  for (int i = 0; i < kMessages; ++i) {
    const std::int64_t count = i % 3 == 0 ? 50'000 : 1 + i;
    data.push_back(world.rank() == 0 ? values<float>(i, count)
                                     : std::vector<float>(static_cast<std::size_t>(count)));
  }
  for (auto& message : data) {
    const auto direction =
        world.rank() == 0 ? Transfer::Direction::kSend : Transfer::Direction::kReceive;
    pending.push_back(world.exchange(Stream(), {{direction, 1 - world.rank(), wrap(message)}}));
  }
  for (auto work = pending.rbegin(); work != pending.rend(); ++work) work->wait_host();
  for (int i = 0; i < kMessages; ++i) {
    const auto& message = data[static_cast<std::size_t>(i)];
    EXPECT_TRUE(same_bits(message, values<float>(i, static_cast<std::int64_t>(message.size()))));
  }
}

// Lanes are independent: each rank issues the operations of several communicators in an order of
// its own, and none waits for another lane's.
TEST(Comm, LanesInterleaveInAnyOrder) {
  const int size = runtime().size();
  std::vector<int> all;
  for (int rank = 0; rank < size; ++rank) all.push_back(rank);
  std::vector<std::unique_ptr<Communicator>> lanes;
  for (int lane = 0; lane < 4; ++lane)
    lanes.push_back(runtime().group("lane" + std::to_string(lane), all));
  constexpr int kOperations = 25;
  std::mt19937 random(static_cast<unsigned>(runtime().rank()));
  std::vector<int> order;
  for (int lane = 0; lane < 4; ++lane) order.insert(order.end(), kOperations, lane);
  std::ranges::shuffle(order, random);
  const std::int64_t counts[] = {5, 1001, 30'000};
  std::vector<std::vector<std::vector<float>>> data(4);
  for (auto& lane : data) lane.resize(kOperations);
  std::vector<int> issued(4, 0);
  std::vector<Work> pending;
  for (const int lane : order) {
    const int k = issued[static_cast<std::size_t>(lane)]++;
    auto& buffer = data[static_cast<std::size_t>(lane)][static_cast<std::size_t>(k)];
    buffer = values<float>(runtime().rank() + k, counts[(k + lane) % 3]);
    pending.push_back(
        lanes[static_cast<std::size_t>(lane)]->all_reduce(Stream(), wrap(buffer), ReduceOp::kMax));
  }
  std::ranges::shuffle(pending, random);
  for (const Work& work : pending) work.wait_host();
  for (int lane = 0; lane < 4; ++lane) {
    for (int k = 0; k < kOperations; ++k) {
      const auto& buffer = data[static_cast<std::size_t>(lane)][static_cast<std::size_t>(k)];
      for (std::size_t i = 0; i < buffer.size(); i += 97) {
        float expected = value_of<float>(k, static_cast<std::int64_t>(i));
        for (int rank = 1; rank < size; ++rank) {
          expected = std::max(expected, value_of<float>(rank + k, static_cast<std::int64_t>(i)));
        }
        ASSERT_EQ(buffer[i], expected) << lane << " " << k << " " << i;
      }
    }
  }
}

// A work owns its tensors: the caller may drop its own at once.
TEST(Comm, WorkOwnsItsTensors) {
  Communicator& world = runtime().world();
  const auto allocator = make_caching_allocator(Device());
  Tensor result = Tensor::allocate(*allocator, Stream(), {world.size() * 100'000}, DType::kF32,
                                   MemoryUse::kWorkspace);
  Work work;
  {
    Tensor input =
        Tensor::allocate(*allocator, Stream(), {100'000}, DType::kF32, MemoryUse::kGradients);
    std::ranges::fill(input.span<float>(), static_cast<float>(world.rank()));
    work = world.all_gather(Stream(), input, result);
  }
  work.wait_host();
  EXPECT_TRUE(work.done());
  for (int rank = 0; rank < world.size(); ++rank) {
    EXPECT_EQ(result.data<float>()[rank * 100'000 + 99'999], static_cast<float>(rank));
  }
  EXPECT_EQ(allocator->stats().live[static_cast<std::size_t>(MemoryUse::kGradients)], 0u);
}

TEST(Comm, GroupsCountInTheListedOrder) {
  const int size = runtime().size();
  std::vector<int> reversed;
  for (int rank = size - 1; rank >= 0; --rank) {
    if (rank % 2 == runtime().rank() % 2) reversed.push_back(rank);
  }
  const auto group = runtime().group("parity", reversed);
  ASSERT_EQ(group->size(), static_cast<int>(reversed.size()));
  EXPECT_EQ(group->world_rank(group->rank()), runtime().rank());
  EXPECT_EQ(group->name(), "parity");
  std::vector<std::int32_t> members(reversed.size());
  std::vector<std::int32_t> own = {runtime().rank()};
  group->all_gather(Stream(), wrap(own), wrap(members)).wait_host();
  EXPECT_EQ(members, std::vector<std::int32_t>(reversed.begin(), reversed.end()));
  const int lane = group->lane_id();
  EXPECT_NE(lane, 0);
  EXPECT_EQ(group->all_reduce_host(std::int64_t{lane}, ReduceOp::kMax), lane);
  EXPECT_EQ(group->all_reduce_host(std::int64_t{lane}, ReduceOp::kMin), lane);
  const auto again = runtime().group("parity", reversed);
  EXPECT_NE(again->lane_id(), lane);
}

// The ranks of a group by the formula of the place, ((r S + s) P + p) T + t. `axes` run over all of
// their indices, the others keep those of `place`.
std::vector<int> expected_group(const GridShape& shape, Axes axes, int place) {
  const int shards = shape[Axis::kShard], stages = shape[Axis::kPipeline];
  const int tensor = shape[Axis::kTensor];
  const auto indices = [&](Axis axis, int here) {
    std::vector<int> all(static_cast<std::size_t>(axes.contains(axis) ? shape[axis] : 1), here);
    if (axes.contains(axis)) std::iota(all.begin(), all.end(), 0);
    return all;
  };
  std::vector<int> places;
  for (const int r : indices(Axis::kReplicate, place / (shards * stages * tensor))) {
    for (const int s : indices(Axis::kShard, place / (stages * tensor) % shards)) {
      for (const int p : indices(Axis::kPipeline, place / tensor % stages)) {
        for (const int t : indices(Axis::kTensor, place % tensor)) {
          places.push_back(((r * shards + s) * stages + p) * tensor + t);
        }
      }
    }
  }
  return places;
}

// Every grid of as many ranks, replicate x shard x pipeline x tensor.
std::vector<GridShape> grids_of(int ranks) {
  std::vector<GridShape> shapes;
  for (int tensor = 1; tensor <= ranks; ++tensor) {
    for (int pipeline = 1; tensor * pipeline <= ranks; ++pipeline) {
      for (int shard = 1; tensor * pipeline * shard <= ranks; ++shard) {
        if (ranks % (tensor * pipeline * shard) != 0) continue;
        shapes.emplace_back(ranks / (tensor * pipeline * shard), pipeline, tensor);
        shapes.back()[Axis::kShard] = shard;
      }
    }
  }
  return shapes;
}

void check_group(const ProcessGrid& grid, Axes axes, const std::vector<int>& expected) {
  SCOPED_TRACE(grid.shape().to_string() + ", " + axes.to_string());
  EXPECT_EQ(grid.ranks(axes), expected);
  Communicator& comm = grid.comm(axes);
  ASSERT_EQ(comm.size(), static_cast<int>(expected.size()));
  EXPECT_EQ(comm.rank(), grid.index(axes));
  std::int64_t sum = 0;
  for (int i = 0; i < comm.size(); ++i) {
    EXPECT_EQ(comm.world_rank(i), expected[static_cast<std::size_t>(i)]);
    sum += std::int64_t{1} << comm.world_rank(i);
  }
  EXPECT_EQ(comm.all_reduce_host(std::int64_t{1} << runtime().rank(), ReduceOp::kSum), sum);
}

// A factor that is the whole data dimension has no communicator of its own.
void check_sharing(const ProcessGrid& grid) {
  SCOPED_TRACE(grid.shape().to_string());
  const int replicate = grid.extent(Axis::kReplicate), shard = grid.extent(Axis::kShard);
  Communicator* const data = &grid.comm(kDataAxes);
  EXPECT_EQ(&grid.comm(Axis::kReplicate) == data, shard == 1);
  EXPECT_EQ(&grid.comm(Axis::kShard) == data, replicate == 1);
  std::vector<std::string> names;
  for (const Communicator* comm : grid.communicators()) names.push_back(comm->name());
  std::vector<std::string> expected = {"grid", "data", "pipeline", "tensor", "model"};
  if (shard > 1) expected.emplace_back("replicate");
  if (replicate > 1) expected.emplace_back("shard");
  EXPECT_EQ(names, expected);
}

TEST(Grid, CommunicatorsHoldTheRanksThatDifferInTheirAxes) {
  const int ranks = runtime().size();
  std::vector<int> reversed(static_cast<std::size_t>(ranks));
  std::iota(reversed.rbegin(), reversed.rend(), 0);
  bool in_order = false;
  for (const GridShape& shape : grids_of(ranks)) {
    in_order = !in_order;
    const ProcessGrid grid(runtime(), shape, in_order ? std::vector<int>() : reversed);
    const auto rank_at = [&](int place) { return in_order ? place : ranks - 1 - place; };
    for (const Axes axes : {kDataAxes, kModelAxes, Axes(Axis::kReplicate), Axes(Axis::kShard),
                            Axes(Axis::kPipeline), Axes(Axis::kTensor)}) {
      std::vector<int> expected = expected_group(shape, axes, rank_at(runtime().rank()));
      for (int& rank : expected) rank = rank_at(rank);
      check_group(grid, axes, expected);
    }
    check_sharing(grid);
  }
}

TEST(Grid, AGroupWithoutACommunicatorIsNamed) {
  const ProcessGrid grid(runtime(), {runtime().size(), 1, 1});
  try {
    grid.comm(Axis::kShard | Axis::kTensor);
    FAIL() << "no error";
  } catch (const InternalError& error) {
    EXPECT_STREQ(error.what(), "the grid has no communicator of the axes shard x tensor");
  }
}

// All clocks are this host's: nobody leaves before the last has come.
TEST(Comm, BarrierHoldsUntilAllHaveCome) {
  Communicator& world = runtime().world();
  for (int late = 0; late < world.size(); ++late) {
    if (world.rank() == late) usleep(3000);
    const std::int64_t came = now_ns();
    world.barrier().wait_host();
    const std::int64_t left = now_ns();
    EXPECT_LE(world.all_reduce_host(came, ReduceOp::kMax),
              world.all_reduce_host(left, ReduceOp::kMin));
  }
  EXPECT_TRUE(runtime().recorder().under_way().empty());
}

TEST(Comm, TheRecorderNumbersOperationsByLane) {
  if (runtime().size() < 2) GTEST_SKIP() << "one rank has nothing to record";
  std::vector<int> all;
  for (int rank = 0; rank < runtime().size(); ++rank) all.push_back(rank);
  const auto group = runtime().group("recorded", all);
  for (int i = 0; i < 3; ++i) group->agree(true);
  {
    const FlightRecorder::Scope scope(runtime().recorder(), *group, "H5Dwrite");
    const auto under_way = runtime().recorder().under_way();
    ASSERT_EQ(under_way.size(), 1u);
    EXPECT_EQ(under_way[0].name, "H5Dwrite");
  }
  std::uint64_t last = 0;
  for (const Operation& operation : runtime().recorder().finished()) {
    if (operation.lane != group->lane_id()) continue;
    EXPECT_EQ(operation.sequence, ++last);
    EXPECT_EQ(operation.name, "all_reduce");
    EXPECT_GE(operation.end_ns, operation.begin_ns);
  }
  EXPECT_EQ(last, 3u);
  EXPECT_LE(runtime().recorder().finished().size(), 1024u);
  EXPECT_GT(runtime().recorder().exposed_seconds(), 0.0);
}

TEST(Runtime, OneRankPlansACommunicatorForAll) {
  const int ranks = runtime().size();
  if (ranks == 1) GTEST_SKIP() << "one rank has nothing to plan";
  // Without a planner a communicator knows the nodes of its ranks.
  const auto& plain = *runtime().communicators().front().plan;
  ASSERT_TRUE(plain.blocks);
  EXPECT_EQ(plain.blocks->tiers(), 1);
  EXPECT_EQ(plain.blocks->blocks(0), runtime().nodes());
  EXPECT_EQ(plain.blocks->block(0, runtime().rank()), runtime().node());

  std::vector<int> reversed;
  for (int rank = ranks - 1; rank >= 0; --rank) reversed.push_back(rank);
  std::vector<int> halves(reversed.size());
  for (std::size_t i = halves.size() / 2; i < halves.size(); ++i) halves[i] = 1;
  const CommunicatorPlan plan{
      .algorithms =
          AlgorithmTable({{Collective::kAllReduce, 100, Algorithm::kDoubling},
                          {Collective::kAllReduce, std::size_t{1} << 50, Algorithm::kLibrary}}),
      .blocks = std::make_shared<RankBlocks>(ranks, std::vector<std::vector<int>>{halves})};
  int calls = 0;
  runtime().use_planner([&](const std::string& name, const std::vector<int>& members) {
    ++calls;
    EXPECT_EQ(name, "planned");
    EXPECT_EQ(members, reversed);
    return plan;
  });
  const auto planned = runtime().group("planned", reversed);
  const auto& made = runtime().communicators().back();
  EXPECT_EQ(calls, planned->rank() == 0 ? 1 : 0);
  EXPECT_EQ(made.name, "planned");
  EXPECT_EQ(made.ranks, reversed);
  EXPECT_EQ(*made.plan->blocks, *plan.blocks);
  EXPECT_EQ(plan_to_text(*made.plan), plan_to_text(plan));
  EXPECT_FALSE(planned->fixes_order_of_sums(DeviceKind::kCpu));  // it uses MPI's own

  runtime().use_planner(
      [](const auto&, const auto&) -> CommunicatorPlan { throw ConfigError("no plan"); });
  EXPECT_THROW(runtime().group("refused", reversed), ConfigError);
  runtime().use_planner(nullptr);
}

TEST(Runtime, KnowsItsPlace) {
  EXPECT_EQ(runtime().size(), runtime().world().size());
  EXPECT_GE(runtime().cores(), 1);
  EXPECT_FALSE(runtime().host().empty());
  EXPECT_EQ(runtime().nodes(), 1);  // mpiexec starts all on this host
  EXPECT_EQ(runtime().local_size(), runtime().size());
  EXPECT_EQ(runtime().local_rank(), runtime().rank());
}

}  // namespace
}  // namespace trireme
