// The tasks of collectives in a simulated world: their results, their times, their faults.
#include "trireme/topology/simulated_world.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <ctime>
#include <limits>
#include <map>
#include <memory>
#include <numeric>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/collective_tasks.h"

#include "support/comm_values.h"
#include "support/simulated_network.h"
#include "topology/fair_share.h"

namespace trireme {
namespace {

using testing::all_reduced;
using testing::nearly_same;
using testing::on_each_host;
using testing::one_switch;
using testing::same_bits;
using testing::values;
using testing::wrap;

TEST(FairShare, TheSlowestLinkIsSharedFirst) {
  FairShare share({10.0, 100.0});
  int both = 0, also = 0, alone = 0;
  share.begin(0.0, &both, {0, 1}, 50.0);
  share.begin(0.0, &also, {0, 1}, 25.0);
  share.begin(0.0, &alone, {1}, 1000.0);
  share.settle(0.0);
  EXPECT_DOUBLE_EQ(share.rate_of(&both), 5.0);
  EXPECT_DOUBLE_EQ(share.rate_of(&also), 5.0);
  EXPECT_DOUBLE_EQ(share.rate_of(&alone), 90.0);
  EXPECT_DOUBLE_EQ(share.next_end(), 5.0);
  EXPECT_EQ(share.take_ended(5.0, 0.0), std::vector<void*>{&also});
  share.settle(5.0);
  EXPECT_DOUBLE_EQ(share.rate_of(&both), 10.0);  // for the 25 bytes that are left
  EXPECT_DOUBLE_EQ(share.rate_of(&alone), 90.0);
  EXPECT_DOUBLE_EQ(share.next_end(), 7.5);
}

// Many messages of many sizes between 4 sources and 4 targets: the links stay as full as they may
// be, although rates are set only now and then.
TEST(FairShare, ManyMessagesKeepTheirLinksFull) {
  const int kMessages = 4000;
  FairShare share(std::vector<double>(8, 100.0));
  std::vector<int> names(kMessages);
  std::vector<double> of_link(8, 0.0);
  for (int i = 0; i < kMessages; ++i) {
    const double bytes = 1.0 + i % 17;
    const int from = i % 4, to = 4 + i / 4 % 4;
    share.begin(0.0, &names[static_cast<std::size_t>(i)], {from, to}, bytes);
    for (const int link : {from, to}) of_link[static_cast<std::size_t>(link)] += bytes / 100.0;
  }
  const double most = *std::ranges::max_element(of_link);
  double now = 0.0;
  int arrived = 0;
  for (;;) {
    share.settle(now);
    if (share.next_end() == std::numeric_limits<double>::infinity()) break;
    now = share.next_end();
    arrived += static_cast<int>(share.take_ended(now, 0.0).size());
  }
  EXPECT_EQ(arrived, kMessages);
  EXPECT_GE(now, most * (1 - 1e-9));
  EXPECT_LE(now, most * 1.02);
}

// Messages of other sizes on each of many pairs of links, which have nothing to do with each other.
TEST(FairShare, WhatChangesFarAwayCostsNothing) {
  const int kPairs = 500, kOfPair = 20;
  FairShare share(std::vector<double>(2 * kPairs, 100.0));
  std::vector<int> names(kPairs * kOfPair);
  for (int i = 0; i < kPairs * kOfPair; ++i) {
    const int pair = i % kPairs;
    share.begin(0.0, &names[static_cast<std::size_t>(i)], {2 * pair, 2 * pair + 1},
                100.0 + 0.37 * i);
  }
  std::size_t arrived = 0;
  double now = 0.0;
  while (arrived < names.size()) {
    share.settle(now);
    now = share.next_end();
    ASSERT_LT(now, std::numeric_limits<double>::infinity());
    arrived += share.take_ended(now, 0.0).size();
  }
  // Each message that ends changes the rates of at most 19 others on either link.
  EXPECT_LE(share.work(), names.size() * kOfPair * 3);
}

// Messages come and go one by one, fewer than kFinest on each link. Each time the rates are nearly
// those of a world that has just begun with the messages that are under way.
TEST(FairShare, RatesStayNearTheFairOnes) {
  const int kLinks = 60, kMessages = 400;
  std::vector<double> capacities;
  for (int i = 0; i < kLinks; ++i) capacities.push_back(100.0 + 7.0 * i);
  FairShare share(capacities);
  std::mt19937_64 random(3);
  std::map<const void*, std::vector<int>> routes;
  std::vector<int> names(kMessages);
  std::size_t begun = 0;
  double now = 0.0;
  double worst = 0.0;
  while (begun < names.size() || !routes.empty()) {
    if (begun < names.size() && routes.size() < 120) {
      const auto near = static_cast<int>(random() % 20), far = static_cast<int>(20 + random() % 40);
      const auto is_full = [&](int link) {
        return std::ranges::count_if(routes, [&](const auto& entry) {
                 return std::ranges::count(entry.second, link) > 0;
               }) >= FairShare::kFinest - 1;
      };
      if (is_full(near) || is_full(far)) continue;
      int* const what = &names[begun++];
      routes[what] = {near, far};
      share.begin(now, what, routes[what], 50.0 + static_cast<double>(random() % 1000));
    } else {
      now = share.next_end();
      for (void* what : share.take_ended(now, 0.0)) routes.erase(what);
    }
    share.settle(now);
    FairShare fresh(capacities);
    for (const auto& [what, links] : routes) {
      fresh.begin(0.0, const_cast<void*>(what), links, 1.0);
    }
    fresh.settle(0.0);
    for (const auto& [what, links] : routes) {
      worst = std::max(worst, std::abs(share.rate_of(what) / fresh.rate_of(what) - 1.0));
    }
  }
  EXPECT_LE(worst, 0.02);
}

TEST(TreeNetwork, BlocksAndWaysUpComeFromTheCables) {
  // Two leaves on two spines, with two cables to one of them; host3 stands on its own.
  Fabric fabric(FabricSource::kDump);
  const int hosts[] = {fabric.add_host("host1"), fabric.add_host("host2"),
                       fabric.add_host("host3")};
  const int leaves[] = {fabric.add_switch("leaf1"), fabric.add_switch("leaf2")};
  const int spines[] = {fabric.add_switch("spine1"), fabric.add_switch("spine2")};
  fabric.add_cable({leaves[0], hosts[0], 10.0});
  fabric.add_cable({hosts[1], leaves[1], 0.0});
  for (const int leaf : leaves) {
    for (const int spine : spines) fabric.add_cable({spine, leaf, 4.0});
  }
  fabric.add_cable({leaves[1], spines[1], 1.0});
  fabric.find_levels();
  const TreeNetwork network(fabric, {hosts[0], hosts[1], hosts[0], hosts[2]},
                            {.cable_bytes_per_second = 7.0, .memory_bytes_per_second = 70.0});
  const auto route = [&](int from, int to) {
    std::vector<int> links;
    network.route(from, to, links);
    std::string text;
    for (const int link : links) {
      const Link& one = network.links()[static_cast<std::size_t>(link)];
      text += one.bytes_per_second > 1e6
                  ? fmt::format("{}; ", one.name)
                  : fmt::format("{} {:.0f}; ", one.name, one.bytes_per_second);
    }
    return text;
  };
  EXPECT_EQ(route(0, 2), "memory of host1 70; ");
  EXPECT_EQ(route(0, 1),
            "host1 up 10; block of host1 in tier 1 up 8; block of host2 in tier 1 down 9; "
            "host2 down 7; ");
  EXPECT_EQ(network.tiers(), 1);
  EXPECT_EQ(network.block(1, 0), network.block(1, 2));
  EXPECT_NE(network.block(1, 0), network.block(1, 1));
  // Nothing limits what leaves a block without cables.
  EXPECT_EQ(route(3, 0),
            "host3 up 7; block of host3 in tier 1 up; block of host1 in tier 1 down 8; "
            "host1 down 10; ");
  EXPECT_THROW(TreeNetwork(fabric, {leaves[0]}, {}), InternalError);
}

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
        SimulatedWorld::Options options{.segment_bytes = 1000,
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

// Of zeros of both signs neither is larger, and the left operand remains. So the result is the zero
// of rank 0, unless operands change places: then ranks would have different bits.
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

// The seconds of a collective on tensors of that many bytes in all, without contents.
SimulatedWorld::Result simulate(const Network& network, Collective collective, Algorithm algorithm,
                                std::int64_t bytes, SimulatedCosts costs,
                                std::shared_ptr<const RankBlocks> blocks = {}) {
  SimulatedWorld world(network, {.costs = costs, .contents = false, .blocks = std::move(blocks)});
  const int ranks = network.ranks();
  return world.run(ranks, [&](TransportPtr transport) {
    const Tensor whole = world.tensor(bytes / 4, DType::kF32);
    const Tensor part = world.tensor(bytes / 4 / ranks, DType::kF32);
    const bool gathers = collective == Collective::kAllGather;
    return make_collective(collective, algorithm, std::move(transport),
                           {.input = gathers ? part : whole,
                            .output = collective == Collective::kReduceScatter ? part : whole});
  });
}

// 16 hosts, 4 on a leaf with 2 uplinks, 2 us and 25 GB/s: each round of an algorithm costs its
// latency and the time of its bytes on the busiest link, computed by hand. A ring in the order of
// the leaves crosses each uplink once; one of ranks that are dealt to the leaves like cards crosses
// them in each of its steps.
TEST(SimulatedTimes, AreThoseOfTheTable) {
  const double rate = 25e9;
  const std::vector<FatTreeLevel> levels = {{4, 2 * rate}, {4, 0.0}};
  const TreeNetwork by_leaf = on_each_host(16, levels, rate);
  const Fabric fabric = make_fat_tree(levels, rate);
  std::vector<int> dealt;
  for (int rank = 0; rank < 16; ++rank) {
    dealt.push_back(*fabric.host(fmt::format("host{}", rank % 4 * 4 + rank / 4)));
  }
  const TreeNetwork cyclic(fabric, dealt, {});
  struct Row {
    std::int64_t bytes;
    double ring, cyclic_ring, doubling, halving;  // us
  };
  for (const Row& row : {Row{std::int64_t{1} << 10, 60.1, 60.2, 8.2, 16.1},
                         Row{std::int64_t{64} << 10, 64.9, 69.8, 23.7, 21.9},
                         Row{std::int64_t{1} << 20, 138.6, 217.3, 259.7, 110.4},
                         Row{std::int64_t{16} << 20, 1318, 2577, 4035, 1526},
                         Row{std::int64_t{256} << 20, 20193, 40325, 64432, 24175}}) {
    const auto near = [&](const Network& network, Algorithm algorithm, double expected,
                          std::size_t segment_bytes = std::size_t{1} << 30) {
      SimulatedWorld world(
          network, {.costs = {.latency = 2e-6}, .contents = false, .segment_bytes = segment_bytes});
      const auto result = world.run(16, [&](TransportPtr transport) {
        return make_collective(Collective::kAllReduce, algorithm, std::move(transport),
                               {.output = world.tensor(row.bytes / 4, DType::kF32)});
      });
      EXPECT_NEAR(1e6 * result.seconds / expected, 1.0, 0.05)
          << name_of(algorithm) << " of " << row.bytes << " bytes";
    };
    near(by_leaf, Algorithm::kDoubling, row.doubling);
    near(by_leaf, Algorithm::kHalving, row.halving);
    // Also in the segments of production.
    for (const std::size_t segment_bytes : {std::size_t{32} << 20, std::size_t{1} << 30}) {
      near(by_leaf, Algorithm::kRing, row.ring, segment_bytes);
      near(cyclic, Algorithm::kRing, row.cyclic_ring, segment_bytes);
    }
  }
}

// Additions take as long as the wire. Half of them would wait for each other if a segment was not
// on the wire while the others are added up.
TEST(SimulatedTimes, ARingAddsOneSegmentWhileOthersAreOnTheWire) {
  constexpr double kByte = 1e-9;
  const TreeNetwork network = one_switch(8, 1 / kByte);
  const std::int64_t bytes = std::int64_t{64} << 20;
  const double part = static_cast<double>(bytes) / 8, wire = 7 * part * kByte;
  const SimulatedCosts costs{.latency = 2e-6, .reduced_byte = kByte};
  const auto reduced =
      simulate(network, Collective::kReduceScatter, Algorithm::kRing, bytes, costs);
  EXPECT_LT(reduced.seconds, 1.35 * wire);  // 2 if nothing overlaps
  const auto all = simulate(network, Collective::kAllReduce, Algorithm::kRing, bytes, costs);
  EXPECT_LT(all.seconds, 1.2 * 2 * wire);
}

TEST(SimulatedTimes, CostsOfARankAddUp) {
  // Two ranks exchange 1000 floats: one message each way, then one addition.
  const TreeNetwork network = one_switch(2, 4e9);
  const SimulatedCosts costs{.latency = 1e-6, .message = 1e-7, .reduced_byte = 1e-9};
  const auto result = simulate(network, Collective::kAllReduce, Algorithm::kDirect, 4000, costs);
  EXPECT_NEAR(result.seconds, 2e-7 + 1e-6 + 1e-6 + 4e-6, 1e-12);
  EXPECT_EQ(result.messages, 2u);
  EXPECT_EQ(result.worst_bytes, 4000u);
  EXPECT_EQ(result.worst_workspace, 4000u);
  EXPECT_DOUBLE_EQ(result.link_bytes[0], 4000.0);  // host 0 up
}

// All-reduces of 16 MiB on two leaves, with one rank on each host. What crosses the ways up of
// leaves is what T(p) asks for, and each host sends as little as it can. So these ways up, if they
// carry half of what a cable does, or else the hosts' cables are busy nearly all the time.
TEST(SimulatedTimes, TieredLoadsAllLinksLeast) {
  struct Placement {
    std::vector<int> leaf_of;  // by rank
    double crossing;           // buffers, up from the leaf that sends most or down to the other
  };
  const std::int64_t bytes = std::int64_t{16} << 20;
  for (const Placement& placement :
       {Placement{{0, 0, 1, 1}, 1.0}, Placement{{0, 1, 0, 1}, 1.5}, Placement{{0, 1, 1, 0}, 1.5},
        Placement{{0, 0, 1}, 1.0}, Placement{{0, 1, 0}, 1.0}, Placement{{1, 0, 0}, 1.0}}) {
    for (const double uplink : {0.5e9, 1e9}) {
      const Fabric fabric = make_fat_tree({{2, uplink}, {2, 0.0}}, 1e9);
      std::vector<int> hosts, used(2);
      for (const int leaf : placement.leaf_of) {
        const int number = 2 * leaf + used[static_cast<std::size_t>(leaf)]++;
        hosts.push_back(*fabric.host(fmt::format("host{}", number)));
      }
      const TreeNetwork network(fabric, hosts, {});
      const auto ranks = static_cast<int>(hosts.size());
      std::vector<int> nodes(hosts.size());
      std::iota(nodes.begin(), nodes.end(), 0);
      SimulatedWorld world(network,
                           {.costs = {.latency = 50e-6},
                            .contents = false,
                            .blocks = std::make_shared<const RankBlocks>(
                                ranks, std::vector<std::vector<int>>{nodes, placement.leaf_of})});
      const auto result = world.run(ranks, [&](TransportPtr transport) {
        return make_collective(Collective::kAllReduce, Algorithm::kTiered, std::move(transport),
                               {.output = world.tensor(bytes / 4, DType::kF32)});
      });
      double above = 0.0, below = 0.0;
      for (std::size_t i = 0; i < network.links().size(); ++i) {
        double& most = network.links()[i].name.starts_with("block of ") ? above : below;
        most = std::max(most, result.link_bytes[i] / static_cast<double>(bytes));
      }
      const auto name = fmt::format("{}, {} below", fmt::join(placement.leaf_of, " "), uplink);
      EXPECT_NEAR(above, placement.crossing, 0.01) << name;
      // 2 (p - 1) / p among four ranks; of three ranks only those of one leaf own parts.
      EXPECT_NEAR(below, 1.5, 0.01) << name;
      const double bound = std::max(placement.crossing / uplink, 1.5 / 1e9);
      EXPECT_LT(result.seconds, 1.15 * bound * static_cast<double>(bytes)) << name;
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

// Prints what thousands of ranks cost; more of it is in perf/RESULTS.md.
TEST(SimulatedTimes, ThousandsOfRanks) {
  const double rate = 25e9;
  const TreeNetwork fabric = on_each_host(4096, {{16, 8 * rate}, {16, 64 * rate}, {16, 0.0}}, rate);
  std::vector<int> leaf_of, spine_of;
  for (int rank = 0; rank < 4096; ++rank) {
    leaf_of.push_back(rank / 16);
    spine_of.push_back(rank / 256);
  }
  const auto blocks = std::make_shared<const RankBlocks>(
      4096, std::vector<std::vector<int>>{std::move(leaf_of), std::move(spine_of)});
  double all_seconds = 0.0;
  for (const Algorithm algorithm :
       {Algorithm::kDoubling, Algorithm::kHalving, Algorithm::kTiered}) {
    const std::clock_t began = std::clock();
    // Hundreds of thousands of messages are as many events, unless they begin and end together.
    const bool tiered = algorithm == Algorithm::kTiered;
    const std::int64_t bytes = std::int64_t{tiered ? 1 : 16} << 20;
    const auto result = simulate(
        fabric, Collective::kAllReduce, algorithm, bytes,
        {.latency = 2e-6, .message = tiered ? 0.0 : 2e-7, .reduced_byte = tiered ? 0.0 : 5e-11},
        blocks);
    const double seconds = static_cast<double>(std::clock() - began) / CLOCKS_PER_SEC;
    all_seconds += seconds;
    fmt::print(
        "all_reduce of {} MiB among 4,096 ranks by {}: {:.0f} us, {} messages, simulated in "
        "{:.2f} s of a processor\n",
        bytes >> 20, name_of(algorithm), 1e6 * result.seconds, result.messages, seconds);
    // Tiered: three hops up and down, each with 15 others.
    EXPECT_EQ(result.worst_messages, algorithm == Algorithm::kDoubling  ? 12u
                                     : algorithm == Algorithm::kHalving ? 24u
                                                                        : 90u);
  }
  fmt::print("in all {:.2f} s of a processor\n", all_seconds);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(all_seconds, 10.0);
#endif
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
