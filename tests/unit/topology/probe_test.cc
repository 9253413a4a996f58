// Which ranks a probe lets send to which, and what it makes of the times.
#include "trireme/topology/probe.h"

#include <array>
#include <functional>
#include <set>
#include <string>
#include <tuple>

#include <fmt/format.h>
#include <gtest/gtest.h>

namespace trireme {
namespace {

// `leaves` leaf switches of `nodes` nodes of `ranks` ranks.
RankBlocks fabric(int leaves, int nodes, int ranks) {
  std::vector<int> node, leaf;
  for (int rank = 0; rank < leaves * nodes * ranks; ++rank) {
    node.push_back(rank / ranks);
    leaf.push_back(rank / (ranks * nodes));
  }
  return RankBlocks(leaves * nodes * ranks, {node, leaf});
}

void expect_apart(const RankBlocks& blocks, int distance, const std::vector<ProbeRound>& rounds) {
  for (const ProbeRound& round : rounds) {
    std::set<int> busy;  // blocks of the tier below: their way up carries one stream
    for (const ProbeStream& stream : round) {
      EXPECT_TRUE(busy.insert(stream.from).second);
      EXPECT_TRUE(busy.insert(stream.to).second);
      EXPECT_FALSE(stream.ranks.empty());
      for (const auto& [from, to] : stream.ranks) {
        EXPECT_EQ(blocks.distance(from, to), distance);
        EXPECT_EQ(blocks.block(distance - 1, from), stream.from);
        EXPECT_EQ(blocks.block(distance - 1, to), stream.to);
      }
    }
  }
}

TEST(ProbeRounds, NoTwoStreamsShareALink) {
  for (const auto& [leaves, nodes, ranks] :
       {std::array{2, 2, 1}, std::array{2, 2, 4}, std::array{3, 5, 2}, std::array{7, 1, 3},
        std::array{1, 9, 1}, std::array{64, 32, 2}}) {
    const RankBlocks blocks = fabric(leaves, nodes, ranks);
    for (int distance = 1; distance <= 2; ++distance) {
      const ProbeRounds rounds = probe_rounds(blocks, distance);
      expect_apart(blocks, distance, rounds.flow);
      expect_apart(blocks, distance, rounds.host);
      expect_apart(blocks, distance, rounds.block);
      const bool apart = distance == 1 ? nodes > 1 : leaves > 1;
      EXPECT_EQ(!rounds.flow.empty(), apart) << leaves << " x " << nodes << ", " << distance;
      EXPECT_EQ(!rounds.host.empty(), apart && ranks > 1);
      EXPECT_EQ(!rounds.block.empty(), apart && distance == 2 && nodes > 1);
      EXPECT_LE(rounds.flow.size() + rounds.host.size() + rounds.block.size(), 18u);
    }
  }
}

TEST(ProbeRounds, EveryNodeSendsAndReceives) {
  for (const int nodes : {2, 5, 6}) {
    const RankBlocks blocks = fabric(2, nodes, 2);
    for (int distance = 1; distance <= 2; ++distance) {
      std::set<int> senders, receivers;
      for (const ProbeRound& round : probe_rounds(blocks, distance).flow) {
        for (const ProbeStream& stream : round) {
          ASSERT_EQ(stream.ranks.size(), 1u);
          senders.insert(blocks.block(0, stream.ranks[0].first));
          receivers.insert(blocks.block(0, stream.ranks[0].second));
        }
      }
      EXPECT_EQ(senders.size(), static_cast<std::size_t>(2 * nodes)) << distance;
      EXPECT_EQ(receivers.size(), static_cast<std::size_t>(2 * nodes)) << distance;
    }
  }
}

TEST(ProbeRounds, BlocksSendFromAllRanks) {
  const ProbeRounds rounds = probe_rounds(fabric(2, 2, 2), 2);
  ASSERT_EQ(rounds.block.size(), 2u);
  using Pairs = std::vector<std::pair<int, int>>;
  EXPECT_EQ(rounds.block[0][0].ranks, (Pairs{{0, 4}, {1, 5}, {2, 6}, {3, 7}}));
  EXPECT_EQ(rounds.block[1][0].ranks, (Pairs{{4, 0}, {5, 1}, {6, 2}, {7, 3}}));
  EXPECT_EQ(rounds.host[0][0].ranks, (Pairs{{0, 4}, {1, 5}}));
}

TEST(ProbeRounds, WithinANodeALonelyRankSendsToItself) {
  const ProbeRounds alone = probe_rounds(fabric(1, 2, 1), 0);
  EXPECT_EQ(alone.flow[0][1].ranks, (std::vector{std::pair(1, 1)}));
  EXPECT_TRUE(alone.host.empty());
  const ProbeRounds three = probe_rounds(fabric(1, 1, 3), 0);
  EXPECT_EQ(three.flow[0][0].ranks, (std::vector{std::pair(0, 1)}));
  EXPECT_EQ(three.host[0][0].ranks,
            (std::vector{std::pair(0, 1), std::pair(1, 2), std::pair(2, 0)}));
}

TEST(StreamRate, LeavesOutTheBurst) {
  // The first step arrives at once.
  EXPECT_DOUBLE_EQ(stream_rate({{10.0, {0.1, 1.1, 2.1, 3.1}}}), 10.0);
}

TEST(StreamRate, CountsOnlyWhileAllReceive) {
  // One is three times as fast while both receive, 40 bytes a second together.
  const ArrivalTimes fast{30.0, {1.0, 2.0, 3.0}}, slow{30.0, {3.0, 6.0, 7.0}};
  EXPECT_DOUBLE_EQ(stream_rate({fast, {10.0, {1.0, 2.0, 3.0, 3.5}}}), 40.0);
  // Never at the same time: 180 bytes in 7 seconds.
  EXPECT_DOUBLE_EQ(stream_rate({fast, slow}), 180.0 / 7.0);
}

using Streams = std::vector<MeasuredStream>;
const std::vector<std::string> kNames = {"n1", "n2", "n3", "n4"};

// Four nodes on two leaves: n1 with n2 and n3 with n4 at distance 1, the rest at distance 2.
Streams streams(const std::function<double(int from, int to)>& share) {
  Streams all;
  for (const auto& [a, b, distance, rate] :
       {std::tuple(0, 1, 1, 200.0), {2, 3, 1, 202.0}, {0, 2, 2, 100.0}, {1, 3, 2, 99.0}}) {
    all.push_back({distance, a, b, rate * share(a, b)});
    all.push_back({distance, b, a, rate * share(b, a)});
  }
  return all;
}

TEST(FindSlow, SaysNothingWhereAllAreAlike) {
  EXPECT_TRUE(find_slow(streams([](int, int) { return 1.0; }), kNames).empty());
  EXPECT_TRUE(find_slow({}, kNames).empty());
  // Two nodes: nothing to compare with.
  EXPECT_TRUE(find_slow({{1, 0, 1, 5.0}, {1, 1, 0, 5.1}}, kNames).empty());
}

TEST(FindSlow, NamesAHostByItsDirection) {
  const auto receives = find_slow(streams([](int, int to) { return to == 2 ? 0.5 : 1.0; }), kNames);
  ASSERT_EQ(receives.size(), 1u);
  EXPECT_EQ(receives[0].where, "n3 receives");
  EXPECT_NEAR(receives[0].rate / receives[0].usual, 0.5, 0.01);
  const auto both =
      find_slow(streams([](int from, int to) { return from == 1 || to == 1 ? 0.6 : 1.0; }), kNames);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[0].where, "n2 sends");
  EXPECT_EQ(both[1].where, "n2 receives");
}

TEST(FindSlow, NamesBothEndsWhereEitherMayBeAtFault) {
  // n1 is slow only on the way to n2, as n2 is only on the way from n1.
  const auto found =
      find_slow(streams([](int from, int to) { return from == 0 && to == 1 ? 0.4 : 1.0; }), kNames);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].where, "n1 to n2");
  EXPECT_DOUBLE_EQ(found[0].rate, 80.0);
}

TEST(FindSlow, ComparesTwoDirectionsOfOneWay) {
  const auto found = find_slow({{2, 0, 1, 99.0}, {2, 1, 0, 50.0}}, kNames);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0], (SlowLink{1, 0, "n2 to n1", 50.0, 99.0}));
}

TEST(FindSlow, NoiseIsNoFault) {
  // Rates that scatter widely: the lowest is not out of the ordinary.
  Streams all;
  std::vector<std::string> names;
  for (const double rate : {100.0, 85.0, 70.0, 55.0, 40.0, 92.0, 63.0, 48.0}) {
    const int from = static_cast<int>(names.size());
    for (int i = 1; i <= 2; ++i) names.push_back(fmt::format("n{}", from + i));
    all.push_back({1, from, from + 1, rate});
  }
  EXPECT_TRUE(find_slow(all, names).empty());
  // Among rates that are alike it is.
  for (MeasuredStream& stream : all) stream.rate = stream.from == 8 ? 40.0 : 70.0;
  EXPECT_EQ(find_slow(all, names).size(), 1u);
}

}  // namespace
}  // namespace trireme
