// The links of a simulated network: how messages share them, and which ones a message takes.
#include "topology/simulation/fair_share.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <random>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/topology/fabric.h"
#include "trireme/topology/network.h"

namespace trireme {
namespace {

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
            "out of host1 10; out of the leaf switch of host1 8; into the leaf switch of host2 9; "
            "into host2 7; ");
  EXPECT_EQ(network.tiers(), 1);
  EXPECT_EQ(network.block(1, 0), network.block(1, 2));
  EXPECT_NE(network.block(1, 0), network.block(1, 1));
  // Nothing limits what leaves a block without cables.
  EXPECT_EQ(route(3, 0),
            "out of host3 7; out of the leaf switch of host3; into the leaf switch of host1 8; "
            "into host1 10; ");
  EXPECT_THROW(TreeNetwork(fabric, {leaves[0]}, {}), InternalError);
}

}  // namespace
}  // namespace trireme
