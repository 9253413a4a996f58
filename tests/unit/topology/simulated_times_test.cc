// What collectives take in a simulated world, compared with what links and ranks need at least.
#include <algorithm>
#include <cstdint>
#include <ctime>
#include <memory>
#include <numeric>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/comm/collective_tasks.h"
#include "trireme/topology/simulated_world.h"

#include "support/simulated_network.h"

namespace trireme {
namespace {

using testing::on_each_host;
using testing::one_switch;

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
        double& most =
            network.links()[i].name.find("leaf switch") != std::string::npos ? above : below;
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

}  // namespace
}  // namespace trireme
