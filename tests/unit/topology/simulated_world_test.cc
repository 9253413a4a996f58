// The tasks of collectives in a simulated world: their results, their workspace, their faults.
#include "trireme/topology/simulated_world.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/collective_tasks.h"

#include "support/comm_values.h"
#include "support/simulated_network.h"

namespace trireme {
namespace {

using testing::all_reduced;
using testing::nearly_same;
using testing::one_switch;
using testing::same_bits;
using testing::values;
using testing::wrap;

// 1 to 17 ranks, each with contents, in order and in orders that a seed draws, and in places that
// it draws.
template <class T>
class Contents : public ::testing::Test {
 protected:
  using Body = std::function<void(SimulatedWorld&, int ranks)>;
  static void in_worlds(const Body& body) {
    for (int ranks = 1; ranks <= 17; ++ranks) {
      const TreeNetwork network = one_switch(ranks);
      for (const bool drawn : {false, true}) {
        SimulatedWorld::Options options{
            .segment_bytes = 1000,
            .worthwhile_bytes = drawn ? std::size_t{40} : std::size_t{1000},
            .eager_bytes = drawn ? std::size_t{64} : 0};
        if (drawn) options.seed = static_cast<std::uint64_t>(ranks);
        for (int tiers = drawn ? 1 : 0; tiers <= 3; tiers += 2) {
          if (tiers > 0) {
            const auto seed = static_cast<unsigned>(10 * ranks + 2 * tiers + (drawn ? 1 : 0));
            options.blocks = testing::drawn_blocks(ranks, tiers, seed);
          }
          SimulatedWorld world(network, options);
          body(world, ranks);
        }
      }
    }
  }
};
using Types =
    ::testing::Types<float, BFloat16, Half, double, std::int32_t, std::int64_t, std::uint8_t>;
TYPED_TEST_SUITE(Contents, Types);

constexpr std::array kOps = {ReduceOp::kSum, ReduceOp::kMax, ReduceOp::kMin};

TYPED_TEST(Contents, EveryAllReduce) {
  this->in_worlds([](SimulatedWorld& world, int ranks) {
    for (const auto& [count, op] : {std::pair(1, ReduceOp::kSum), std::pair(150, ReduceOp::kSum),
                                    std::pair(40, ReduceOp::kMax), std::pair(40, ReduceOp::kMin)}) {
      const auto expected = all_reduced<TypeParam>(ranks, count, op);
      for (const Algorithm algorithm : algorithms_of(Collective::kAllReduce)) {
        std::vector<std::vector<TypeParam>> data;
        for (int rank = 0; rank < ranks; ++rank) data.push_back(values<TypeParam>(rank, count));
        world.run(ranks, [&](TransportPtr transport) {
          auto& own = data[static_cast<std::size_t>(transport->rank())];
          return make_collective(Collective::kAllReduce, algorithm, std::move(transport),
                                 {.output = wrap(own), .op = op});
        });
        for (const auto& result : data) {
          EXPECT_TRUE(keeps_order(algorithm) ? same_bits(result, expected)
                                             : nearly_same(result, expected))
              << name_of(algorithm) << " among " << ranks << ", operation " << static_cast<int>(op);
          EXPECT_TRUE(same_bits(result, data.front())) << name_of(algorithm) << " among " << ranks;
        }
      }
    }
  });
}

TYPED_TEST(Contents, EveryReduceScatter) {
  this->in_worlds([](SimulatedWorld& world, int ranks) {
    for (const ReduceOp op : kOps) {
      const std::int64_t part = op == ReduceOp::kSum ? 31 : 7;
      for (const Algorithm algorithm : algorithms_of(Collective::kReduceScatter)) {
        std::vector<std::vector<TypeParam>> inputs, outputs;
        for (int rank = 0; rank < ranks; ++rank) {
          inputs.push_back(values<TypeParam>(rank, part * ranks));
          outputs.emplace_back(static_cast<std::size_t>(part));
        }
        world.run(ranks, [&](TransportPtr transport) {
          const auto rank = static_cast<std::size_t>(transport->rank());
          return make_collective(
              Collective::kReduceScatter, algorithm, std::move(transport),
              {.input = wrap(inputs[rank]), .output = wrap(outputs[rank]), .op = op});
        });
        for (int rank = 0; rank < ranks; ++rank) {
          const auto& result = outputs[static_cast<std::size_t>(rank)];
          const auto expected = all_reduced<TypeParam>(ranks, part, op, part * rank);
          EXPECT_TRUE(keeps_order(algorithm) ? same_bits(result, expected)
                                             : nearly_same(result, expected))
              << name_of(algorithm) << " among " << ranks << ", operation " << static_cast<int>(op);
        }
      }
    }
  });
}

TYPED_TEST(Contents, EveryAllGatherAllToAllAndBroadcast) {
  this->in_worlds([](SimulatedWorld& world, int ranks) {
    const std::int64_t part = 31;
    const auto all = static_cast<std::size_t>(part * ranks);
    for (const Collective collective :
         {Collective::kAllGather, Collective::kAllToAll, Collective::kBroadcast}) {
      for (const Algorithm algorithm : algorithms_of(collective)) {
        const bool gathers = collective == Collective::kAllGather;
        const bool broadcasts = collective == Collective::kBroadcast;
        const int root = ranks / 2;
        std::vector<std::vector<TypeParam>> inputs, outputs;
        for (int rank = 0; rank < ranks; ++rank) {
          inputs.push_back(values<TypeParam>(rank, gathers ? part : part * ranks));
          outputs.emplace_back(all);
        }
        if (broadcasts) outputs[static_cast<std::size_t>(root)] = inputs[0];
        world.run(ranks, [&](TransportPtr transport) {
          const auto rank = static_cast<std::size_t>(transport->rank());
          return make_collective(
              collective, algorithm, std::move(transport),
              {.input = wrap(inputs[rank]), .output = wrap(outputs[rank]), .root = root});
        });
        for (int rank = 0; rank < ranks; ++rank) {
          std::vector<TypeParam> expected;
          for (int from = 0; from < ranks; ++from) {
            const auto one = values<TypeParam>(broadcasts ? 0 : from, part,
                                               gathers ? 0 : part * (broadcasts ? from : rank));
            expected.insert(expected.end(), one.begin(), one.end());
          }
          EXPECT_TRUE(same_bits(outputs[static_cast<std::size_t>(rank)], expected))
              << name_of(collective) << ", " << name_of(algorithm) << " among " << ranks;
        }
      }
    }
  });
}

// Neither of two zeros is larger, whatever their signs, and the left operand remains. So the result
// is the zero of rank 0, unless operands change places: then ranks would have different bits.
TEST(SimulatedWorld, LowerRanksAreTheLeftOperand) {
  const auto check = [](SimulatedWorld& world, int ranks, Collective collective,
                        Algorithm algorithm, ReduceOp op) {
    const auto count = static_cast<std::size_t>(ranks) << ranks;  // all signs of all ranks
    const bool scatters = collective == Collective::kReduceScatter;
    const std::size_t part = scatters ? count / static_cast<std::size_t>(ranks) : count;
    std::vector<std::vector<float>> data, parts;
    for (int rank = 0; rank < ranks; ++rank) {
      std::vector<float>& own = data.emplace_back(count);
      for (std::size_t i = 0; i < count; ++i) own[i] = (i >> rank) % 2 == 0 ? 0.0f : -0.0f;
      parts.emplace_back(scatters ? part : 0);
    }
    world.run(ranks, [&](TransportPtr transport) {
      const auto rank = static_cast<std::size_t>(transport->rank());
      return make_collective(
          collective, algorithm, std::move(transport),
          {.input = wrap(data[rank]), .output = wrap((scatters ? parts : data)[rank]), .op = op});
    });
    for (int rank = 0; rank < ranks; ++rank) {
      const auto own = static_cast<std::size_t>(rank);
      const std::vector<float>& result = (scatters ? parts : data)[own];
      const std::size_t first = scatters ? own * part : 0;
      for (std::size_t i = 0; i < part; ++i) {
        ASSERT_EQ(std::signbit(result[i]), (first + i) % 2 != 0)
            << name_of(collective) << " by " << name_of(algorithm) << " among " << ranks;
      }
    }
  };
  for (int ranks = 2; ranks <= 8; ++ranks) {
    const TreeNetwork network = one_switch(ranks);
    for (int tiers = 0; tiers <= 2; ++tiers) {
      SimulatedWorld::Options options{.segment_bytes = 4000};
      if (tiers > 0) {
        options.blocks = testing::drawn_blocks(ranks, tiers, static_cast<unsigned>(ranks));
      }
      SimulatedWorld world(network, options);
      for (const Collective collective : {Collective::kAllReduce, Collective::kReduceScatter}) {
        for (const Algorithm algorithm : algorithms_of(collective)) {
          if (!keeps_order(algorithm)) continue;
          for (const ReduceOp op : {ReduceOp::kMax, ReduceOp::kMin}) {
            check(world, ranks, collective, algorithm, op);
          }
        }
      }
    }
  }
}

// What is under way at a time fits the segments of the transport.
TEST(SimulatedWorld, WorkspaceStaysBounded) {
  const TreeNetwork network = one_switch(8);
  const std::size_t segment = std::size_t{1} << 20;
  const auto blocks = std::make_shared<const RankBlocks>(
      8, std::vector<std::vector<int>>{{0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 1}});
  for (const Algorithm algorithm :
       {Algorithm::kTiered, Algorithm::kRing, Algorithm::kBinomial, Algorithm::kHalving}) {
    SimulatedWorld world(network, {.contents = false, .segment_bytes = segment, .blocks = blocks});
    const auto result = world.run(8, [&](TransportPtr transport) {
      return make_collective(Collective::kAllReduce, algorithm, std::move(transport),
                             {.output = world.tensor(std::int64_t{64} << 20, DType::kBF16)});
    });
    EXPECT_LE(result.worst_workspace, 4 * segment) << name_of(algorithm);
    if (algorithm != Algorithm::kRing) continue;
    // Four of its segments are under way, so 128 MiB are cut into quarters of what the transport
    // allows, and each goes around the ring twice.
    EXPECT_EQ(result.worst_messages, 128u * 4 * 2 * 7);
  }
  SimulatedWorld world(network, {.contents = false, .segment_bytes = segment, .blocks = blocks});
  const auto result = world.run(8, [&](TransportPtr transport) {
    const Tensor whole = world.tensor(std::int64_t{16} << 20, DType::kF32);
    return make_collective(Collective::kAllToAll, Algorithm::kBruck, std::move(transport),
                           {.input = whole, .output = whole});
  });
  EXPECT_LE(result.worst_workspace, segment);
}

// Where short messages are worth their cost, buffers are cut into more of them.
TEST(SimulatedWorld, SegmentsAreAsSmallAsIsWorthwhile) {
  const TreeNetwork network = one_switch(8);
  const auto blocks = std::make_shared<const RankBlocks>(
      8, std::vector<std::vector<int>>{{0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 1}});
  const auto messages = [&](Collective collective, Algorithm algorithm, std::size_t worthwhile) {
    SimulatedWorld world(network,
                         {.contents = false, .worthwhile_bytes = worthwhile, .blocks = blocks});
    const Tensor whole = world.tensor(32 << 10, DType::kF32);
    return world
        .run(8,
             [&](TransportPtr transport) {
               return make_collective(collective, algorithm, std::move(transport),
                                      {.input = whole, .output = whole});
             })
        .messages;
  };
  for (const auto& [collective, algorithm] :
       {std::pair(Collective::kAllReduce, Algorithm::kTiered),
        std::pair(Collective::kAllReduce, Algorithm::kRing),
        std::pair(Collective::kAllReduce, Algorithm::kBinomial),
        std::pair(Collective::kBroadcast, Algorithm::kChain),
        std::pair(Collective::kAllToAll, Algorithm::kTiered)}) {
    EXPECT_GT(messages(collective, algorithm, std::size_t{4} << 10),
              2 * messages(collective, algorithm, std::size_t{64} << 10))
        << name_of(collective) << " by " << name_of(algorithm);
  }
}

// The planner trusts whole_workspace, so it must cover what the tasks really ask for. The widest
// need is that of sums in bf16, which are widened to fp32.
TEST(SimulatedWorld, WorkspaceIsWithinItsEstimate) {
  const std::size_t segment = std::size_t{64} << 10, bytes = std::size_t{4} << 20;
  for (const int ranks : {2, 3, 8}) {
    const TreeNetwork network = one_switch(ranks);
    for (const Collective collective : kCollectives) {
      for (const Algorithm algorithm : algorithms_of(collective)) {
        SimulatedWorld world(network, {.contents = false, .segment_bytes = segment});
        const auto whole = static_cast<std::int64_t>(bytes / 2) / ranks * ranks;
        const bool gathers = collective == Collective::kAllGather;
        const bool scatters = collective == Collective::kReduceScatter;
        const auto result = world.run(ranks, [&](TransportPtr transport) {
          const auto part = [&](bool divided) {
            return world.tensor(divided ? whole / ranks : whole, DType::kBF16);
          };
          return make_collective(collective, algorithm, std::move(transport),
                                 {.input = part(gathers), .output = part(scatters)});
        });
        const double estimate = whole_workspace(collective, algorithm, bytes, ranks);
        EXPECT_LE(static_cast<double>(result.worst_workspace),
                  estimate + 6.0 * static_cast<double>(segment))
            << name_of(collective) << " by " << name_of(algorithm) << ", " << ranks << " ranks";
      }
    }
  }
}

// A task that follows a list: negative for a receive from rank -n - 1, else a send to rank n.
class Script final : public Task {
 public:
  Script(TransportPtr transport, std::vector<int> steps)
      : transport_(std::move(transport)), steps_(std::move(steps)) {}
  Step advance() override {
    if (!transport_->done()) return Step::kIdle;
    if (next_ == steps_.size()) return Step::kDone;
    const int step = steps_[next_++];
    if (step < 0) {
      transport_->receive(byte_, 1, -step - 1);
    } else {
      transport_->send(byte_, 1, step);
    }
    return Step::kMoved;
  }

 private:
  TransportPtr transport_;
  std::vector<int> steps_;
  std::size_t next_ = 0;
  std::byte byte_[1]{};
};

TEST(SimulatedWorld, NamesWhoWaitsWhenNothingMoves) {
  const TreeNetwork network = one_switch(2);
  const auto run = [&](std::size_t eager_bytes) {
    SimulatedWorld world(network, {.eager_bytes = eager_bytes});
    world.run(2, [&](TransportPtr transport) {
      const int peer = 1 - transport->rank();
      return std::make_unique<Script>(std::move(transport), std::vector<int>{peer, -peer - 1});
    });
  };
  // Both send first: that needs messages that leave before they are received.
  EXPECT_NO_THROW(run(1));
  try {
    run(0);
    FAIL() << "no deadlock";
  } catch (const InternalError& error) {
    EXPECT_NE(std::string(error.what())
                  .find("rank 0 sends 1 bytes to 1, which does not receive them; "
                        "rank 1 sends 1 bytes to 0"),
              std::string::npos)
        << error.what();
  }
}

// A receiver that takes messages in another order than they are sent finds other sizes.
TEST(SimulatedWorld, RefusesMessagesThatDoNotFit) {
  const TreeNetwork network = one_switch(2);
  SimulatedWorld world(network, {});
  std::byte bytes[2];
  class Sized final : public Task {
   public:
    Sized(TransportPtr transport, std::byte* data)
        : transport_(std::move(transport)), data_(data) {}
    Step advance() override {
      if (transport_->rank() == 0) {
        transport_->send(data_, 1, 1);
      } else {
        transport_->receive(data_, 2, 0);
      }
      return Step::kMoved;
    }

   private:
    TransportPtr transport_;
    std::byte* data_;
  };
  EXPECT_THROW(world.run(2,
                         [&](TransportPtr transport) {
                           return std::make_unique<Sized>(std::move(transport), bytes);
                         }),
               InternalError);
}

}  // namespace
}  // namespace trireme
