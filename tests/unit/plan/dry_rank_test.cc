// One rank of a world that does not exist.
#include "trireme/comm/dry_rank.h"

#include <array>
#include <numeric>

#include <gtest/gtest.h>

#include "trireme/comm/process_grid.h"

namespace trireme::testing {
namespace {

using enum Transfer::Direction;

template <class T, std::size_t kSize>
Tensor wrap(std::array<T, kSize>& values) {
  return Tensor::wrap(std::span<T>(values));
}

TEST(DryRank, HasItsPlaceInAnyGrid) {
  DryRank rank({.rank = 2345, .size = 4096, .ranks_of_node = 8});
  EXPECT_EQ(rank.node(), 293);
  EXPECT_EQ(rank.nodes(), 512);
  EXPECT_EQ(rank.local_rank(), 1);
  EXPECT_EQ(rank.local_size(), 8);
  EXPECT_EQ(rank.host(), "n293");
  const ProcessGrid grid(rank, {64, 8, 8});
  EXPECT_EQ(grid.index(kDataAxes), 36);
  EXPECT_EQ(grid.index(Axis::kPipeline), 5);
  EXPECT_EQ(grid.index(Axis::kTensor), 1);
  EXPECT_EQ(grid.comm(kDataAxes).size(), 64);
  EXPECT_EQ(grid.comm(kDataAxes).rank(), 36);
  EXPECT_EQ(grid.comm(Axis::kPipeline).world_rank(4), 2345 - 8);
  EXPECT_TRUE(rank.take_traffic().empty());
}

TEST(DryRank, RecordsWhatEachOperationWouldCarry) {
  DryRank rank({.rank = 1, .size = 4});
  const auto dry = make_dry_allocator();
  const auto tensor = [&](std::int64_t elements) {
    return Tensor::allocate(*dry, dry_stream(), {elements}, DType::kF32, MemoryUse::kGradients);
  };
  const auto data = rank.group("data", {1, 3});
  const auto alone = rank.group("tensor", {1});
  rank.recorder().start_trace();
  const Stream ready = dry_stream();
  data->all_reduce(ready, tensor(1000), ReduceOp::kSum).wait_on(ready);
  data->all_reduce(ready, tensor(24), ReduceOp::kSum).wait_host();
  EXPECT_TRUE(data->reduce_scatter(ready, tensor(64), tensor(32), ReduceOp::kSum).done());
  data->all_gather(ready, tensor(10), tensor(20));
  data->exchange(ready, {{kSend, 1, tensor(5)}, {kReceive, 1, tensor(6)}}).wait_on(ready);
  alone->all_reduce(ready, tensor(1000), ReduceOp::kSum);
  const std::vector<DryTraffic> expected = {
      {"data", "all_gather", {1, 3}, 1, 80, 1}, {"data", "all_reduce", {1, 3}, 2, 4096, 1},
      {"data", "receive", {3}, 1, 24, 1},       {"data", "reduce_scatter", {1, 3}, 1, 256, 1},
      {"data", "send", {3}, 1, 20, 1},
  };
  EXPECT_EQ(rank.take_traffic(), expected);
  EXPECT_TRUE(rank.take_traffic().empty());
  const Trace trace = rank.recorder().take_trace();
  ASSERT_EQ(trace.operations.size(), 6u);
  EXPECT_EQ(trace.operations[0].name, "all_reduce");
  EXPECT_EQ(trace.lanes.at(trace.operations[0].lane).name, "data");
  EXPECT_EQ(trace.operations[4].peer, 3);
  EXPECT_TRUE(trace.operations[4].sends);
  EXPECT_FALSE(trace.operations[5].sends);
}

// What a communicator and its traffic tell of it.
TEST(DryRank, CommunicatorsTellTheirSpanAndPurpose) {
  DryRank rank({.rank = 13, .size = 16});
  const ProcessGrid grid(rank, {2, 2, 4});  // this rank is (1, 1, 1)
  EXPECT_EQ(grid.ranks({Axis::kTensor, 2}), (std::vector{12, 13}));
  EXPECT_EQ(grid.comm(kDataAxes).label(), GroupLabel("data", kDataAxes, Purpose::kGradients));
  EXPECT_EQ(grid.world().label().span, Span());
  const GroupLabel pair = {"pair", {Axis::kTensor, 2}, Purpose::kBlocks};
  const auto made = grid.make(pair);
  EXPECT_EQ(made->label(), pair);
  EXPECT_EQ(made->name(), "pair");
  rank.recorder().start_trace();
  made->all_reduce_host(1.0, ReduceOp::kSum);
  ASSERT_EQ(rank.take_traffic().front().group, pair);
  EXPECT_EQ(rank.recorder().take_trace().lanes.at(made->lane_id()), pair);
}

TEST(DryRank, ChecksOperationsAsARealOneDoes) {
  DryRank rank({.rank = 1, .size = 4});
  const auto data = rank.group("data", {1, 3});
  std::array<float, 6> values{};
  const Tensor all = wrap(values);
  EXPECT_THROW(data->all_gather(Stream(), all.flat_range(0, 2), all), InternalError);
  EXPECT_THROW(data->broadcast(Stream(), all, 2), InternalError);
  EXPECT_THROW(data->exchange(Stream(), {{kSend, 2, all}}), InternalError);
  EXPECT_THROW(rank.group("other", {0, 2}), InternalError);
  EXPECT_THROW(data->native_mpi(), InternalError);
}

TEST(DryRank, LeavesWhatTheHostHasAsIfOthersDidNothing) {
  DryRank rank({.rank = 1, .size = 3});
  Communicator& world = rank.world();
  EXPECT_EQ(world.all_reduce_host(5, ReduceOp::kSum), 5);
  EXPECT_TRUE(world.agree(true));
  EXPECT_FALSE(world.agree(false));
  EXPECT_EQ(world.broadcast_text("hello"), "hello");
  std::array<std::int32_t, 6> gathered{};
  std::array<std::int32_t, 2> mine{7, 8};
  world.all_gather(Stream(), wrap(mine), wrap(gathered));
  EXPECT_EQ(gathered, (std::array<std::int32_t, 6>{7, 8, 7, 8, 7, 8}));
  std::array<std::int32_t, 6> input{0, 1, 2, 3, 4, 5};
  world.reduce_scatter(Stream(), wrap(input), wrap(mine), ReduceOp::kSum);
  EXPECT_EQ(mine, (std::array<std::int32_t, 2>{2, 3}));
  world.exchange(Stream(), {{kReceive, 0, wrap(mine)}});
  EXPECT_EQ(mine, (std::array<std::int32_t, 2>{0, 0}));
}

// A send keeps its tensor until the next exchange, or until something waits for it.
TEST(DryRank, ASendHoldsItsTensorForAWhile) {
  DryRank rank({.rank = 0, .size = 2});
  const auto dry = make_dry_allocator();
  const auto send = [&] {
    return rank.world().exchange(
        dry_stream(),
        {{kSend, 1,
          Tensor::allocate(*dry, dry_stream(), {16}, DType::kF32, MemoryUse::kActivations)}});
  };
  const Work first = send();
  EXPECT_FALSE(first.done());
  EXPECT_EQ(dry->stats().total_live, 64u);
  EXPECT_TRUE(first.done());
  EXPECT_EQ(dry->stats().total_live, 0u);
  const Work second = send();
  EXPECT_EQ(dry->stats().total_live, 64u);
  second.wait_host();
  EXPECT_EQ(dry->stats().total_live, 0u);
}

TEST(FlightRecorder, PhasesCanBeWatched) {
  FlightRecorder recorder;
  std::vector<std::pair<std::string, std::int64_t>> seen;
  { const FlightRecorder::Phase unwatched(recorder, "before"); }
  recorder.watch_phases(
      [&](std::string_view name, std::int64_t number) { seen.emplace_back(name, number); });
  {
    const FlightRecorder::Phase step(recorder, "step", 3);
    { const FlightRecorder::Phase forward(recorder, "forward", 0); }
    { const FlightRecorder::Phase backward(recorder, "backward", 1); }
  }
  const std::vector<std::pair<std::string, std::int64_t>> expected = {
      {"step", 3}, {"forward", 0}, {"step", 3}, {"backward", 1}, {"step", 3}, {"", -1}};
  EXPECT_EQ(seen, expected);
}

}  // namespace
}  // namespace trireme::testing
