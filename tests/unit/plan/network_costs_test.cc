// What communication is said to cost: the closed forms of textbooks, links that groups share, and
// networks by name.
#include "trireme/plan/network_costs.h"

#include <cmath>
#include <limits>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"

#include "support/message_of.h"
#include "support/network_example.h"

namespace trireme::plan {
namespace {

using testing::message_of;

const std::vector<std::string> kCollectives = {"all_reduce", "reduce_scatter", "all_gather",
                                               "broadcast", "all_to_all"};

TEST(NetworkCosts, CollectivesTakeWhatTheirBytesTakeOnALink) {
  for (const int nodes : {2, 3, 4, 8, 16, 48, 64}) {
    const double part = (nodes - 1.0) / nodes * kLong / kRate;
    const GridShape grid(nodes, 1, 1);
    for (const bool nccl : {false, true}) {
      SCOPED_TRACE(fmt::format("{} nodes, {}", nodes, nccl ? "NCCL" : "MPI"));
      const NetworkDescription network = network_of(1, nccl);
      const auto within = [&](std::string_view operation, double least, double factor) {
        const CommunicationCost cost = data_cost(network, grid, operation);
        EXPECT_TRUE(cost.leaves_node);
        EXPECT_GE(total(cost), least * (1 - 1e-9)) << operation;
        EXPECT_LE(total(cost), least * factor) << operation;
        EXPECT_GE(cost.flow, 0.9 * least) << operation << ": a link is busy nearly all the time";
      };
      within("all_reduce", 2 * part, 1.1);
      within("reduce_scatter", part, 1.1);
      within("all_gather", part, 1.1);
      within("all_to_all", part, 1.1);
      within("broadcast", kLong / kRate, nccl ? 1.1 : 3.0);  // a chain has to fill
    }
  }
}

TEST(NetworkCosts, AMessageTakesItsLatencyAndItsBytes) {
  const GridShape grid(1, 4, 1);
  NetworkDescription network = network_of(2);
  network.constants = {.efficiency = 0.5, .latency = 2.0, .start = 7e-6};
  NetworkCosts costs(network, grid);
  const GroupLabel label("pipeline", Axes(Axis::kPipeline), Purpose::kActivations);
  const CommunicationCost far = costs.cost("send", label, {1, 2}, kLong);
  EXPECT_TRUE(far.leaves_node);
  EXPECT_NEAR(far.latency, 2 * kLatency + kPosting + 7e-6, 1e-12);
  EXPECT_NEAR(far.flow, kLong / (0.5 * kRate), 1e-9);
  const CommunicationCost near = costs.cost("receive", label, {0, 1}, kLong);
  EXPECT_FALSE(near.leaves_node);
  EXPECT_NEAR(near.latency, 5e-7 + kPosting + 7e-6, 1e-12);
  EXPECT_NEAR(near.flow, kLong / 5e9, 1e-9);

  network = network_of(2, /*nccl=*/true);
  network.node_links = {.latency = 1e-6, .bytes_per_second = 100e9};
  NetworkCosts by_nccl(network, grid);
  EXPECT_NEAR(total(by_nccl.cost("send", label, {1, 2}, kLong)), kLong / kRate, 2e-5);
  EXPECT_NEAR(total(by_nccl.cost("send", label, {0, 1}, kLong)), kLong / 100e9, 2e-5);
}

TEST(NetworkCosts, ARankAloneWaitsForNobody) {
  NetworkCosts costs(network_of(1), GridShape(5, 1, 1));
  EXPECT_EQ(total(costs.cost("all_reduce", data_label(), {0}, kLong)), 0.0);
}

// MPI carries what hosts have to say, also where NCCL carries tensors.
TEST(NetworkCosts, HostsMeetByMpi) {
  const GridShape grid(5, 1, 1);
  const std::vector<int> ranks = {0, 1, 2, 3, 4};
  for (const bool nccl : {false, true}) {
    NetworkCosts costs(network_of(1, nccl), grid);
    const CommunicationCost barrier = costs.cost("barrier", data_label(), ranks, 0);
    EXPECT_EQ(barrier.flow, 0.0);
    EXPECT_NEAR(barrier.latency, 3 * (kLatency + 2 * kPosting), 1e-12);
    NetworkCosts by_mpi(network_of(1), grid);
    EXPECT_EQ(total(costs.cost("all_reduce", "world", ranks, 64)),
              total(by_mpi.cost("all_reduce", "world", ranks, 64)));
  }
}

// Tensor ranks are neighbours, so as many data groups leave each node.
TEST(NetworkCosts, SiblingsShareTheAdapterOfTheirNode) {
  for (const bool nccl : {false, true}) {
    for (const std::string& operation : kCollectives) {
      SCOPED_TRACE(operation + (nccl ? ", NCCL" : ", MPI"));
      const CommunicationCost alone = data_cost(network_of(1, nccl), GridShape(8, 1, 1), operation);
      const CommunicationCost two = data_cost(network_of(2, nccl), GridShape(8, 1, 2), operation);
      EXPECT_NEAR(two.flow / alone.flow, 2.0, 1e-6);
      const CommunicationCost four = data_cost(network_of(4, nccl), GridShape(8, 1, 4), operation);
      EXPECT_NEAR(four.flow / alone.flow, 4.0, 1e-6);
      // Stages may be on a node as well.
      const CommunicationCost stages =
          data_cost(network_of(4, nccl), GridShape(8, 2, 2), operation);
      EXPECT_NEAR(stages.flow / alone.flow, 4.0, 1e-6);
    }
  }
}

// Where each GPU has an adapter, siblings do not meet.
TEST(NetworkCosts, AdaptersOfGpusAreNotShared) {
  const NetworkDescription dgx = known_network("dgx-a100", 8, true);
  NetworkDescription one_gpu = dgx;
  one_gpu.ranks_of_node = 1;
  const CommunicationCost eight = data_cost(dgx, GridShape(4, 1, 8));
  const CommunicationCost alone = data_cost(one_gpu, GridShape(4, 1, 1));
  EXPECT_NEAR(eight.flow, alone.flow, 1e-9);
  EXPECT_NEAR(alone.flow, 1.5 * kLong / (0.9 * 25e9), 0.1 * alone.flow);
  // All ranks of a node in one group use all adapters.
  const CommunicationCost whole = data_cost(dgx, GridShape(32, 1, 1));
  EXPECT_LT(whole.flow, alone.flow / 4);
}

TEST(NetworkCosts, AGroupWithinANodeDoesNotTouchItsLink) {
  for (const bool nccl : {false, true}) {
    const GridShape grid(2, 1, 4);
    NetworkDescription network = network_of(4, nccl), slow = network;
    slow.rates.distances[1].flow = slow.rates.distances[1].host = 1e3;
    NetworkCosts costs(network, grid), on_slow(slow, grid);
    const GroupLabel label("tensor", Axes(Axis::kTensor), Purpose::kActivations);
    for (const std::string& operation : kCollectives) {
      const CommunicationCost cost = costs.cost(operation, label, {4, 5, 6, 7}, kLong);
      EXPECT_FALSE(cost.leaves_node);
      EXPECT_GT(cost.flow, 0.0);
      EXPECT_EQ(total(cost), total(on_slow.cost(operation, label, {4, 5, 6, 7}, kLong)));
    }
  }
}

// NCCL's ring within a node takes what its links take.
TEST(NetworkCosts, LinksOfGpusCarryGroupsWithinANode) {
  NetworkDescription network = network_of(8, /*nccl=*/true);
  network.node_links = {.latency = 1e-6, .bytes_per_second = 100e9};
  NetworkCosts costs(network, GridShape(1, 1, 8));
  const GroupLabel label("tensor", Axes(Axis::kTensor), Purpose::kActivations);
  const std::vector<int> ranks = {0, 1, 2, 3, 4, 5, 6, 7};
  const double least = 2 * 7.0 / 8 * kLong / 100e9;
  const double seconds = total(costs.cost("all_reduce", label, ranks, kLong));
  EXPECT_GE(seconds, least);
  EXPECT_LE(seconds, 1.15 * least);
}

TEST(NetworkCosts, MessagesOfSiblingsShareTheLinkToo) {
  const GroupLabel label("pipeline", Axes(Axis::kPipeline), Purpose::kActivations);
  const auto flow = [&](int ranks_of_node, const GridShape& grid, int a, int b) {
    NetworkCosts costs(network_of(ranks_of_node), grid);
    return costs.cost("send", label, {a, b}, kLong).flow * kRate / kLong;
  };
  EXPECT_NEAR(flow(4, GridShape(1, 2, 4), 0, 4), 4.0, 1e-9);  // a stage on each node
  EXPECT_NEAR(flow(4, GridShape(2, 4, 2), 2, 4), 2.0, 1e-9);  // two stages on each
  EXPECT_NEAR(flow(2, GridShape(1, 3, 1), 1, 2), 1.0, 1e-9);
}

// The stages that share a matrix are some of a pipeline's; so are their siblings.
TEST(NetworkCosts, GroupsOfSomeStagesAndRunsOfRanksHaveSiblings) {
  const GridShape grid(1, 4, 2);
  NetworkCosts costs(network_of(2), grid);
  const GroupLabel tied("tied", {Axis::kPipeline, 0, {0, 3}}, Purpose::kGradients);
  const CommunicationCost two = costs.cost("all_reduce", tied, {0, 6}, kLong);
  const CommunicationCost alone = data_cost(network_of(1), GridShape(2, 1, 1));
  EXPECT_NEAR(two.flow / alone.flow, 2.0, 1e-6);
  const GridShape wide(1, 1, 8);
  NetworkCosts by_runs(network_of(2), wide);
  const GroupLabel runs("kv_copies", {Axis::kTensor, 4}, Purpose::kGradients);
  const CommunicationCost four = by_runs.cost("all_reduce", runs, {4, 5, 6, 7}, kLong);
  NetworkCosts whole(network_of(2), GridShape(1, 1, 4));
  EXPECT_EQ(total(four),
            total(whole.cost("all_reduce", {"tensor", Axes(Axis::kTensor)}, {0, 1, 2, 3}, kLong)));
}

// Ranks 3, 4 and 5 are on the second node, each in another run of two that leaves it.
TEST(NetworkCosts, RunsThatShareANodeShareItsLink) {
  NetworkCosts costs(network_of(3), GridShape(4, 1, 2));
  const GroupLabel runs("runs", {kDataAxes, 2}, Purpose::kGradients);
  const CommunicationCost three = costs.cost("all_reduce", runs, {1, 3}, kLong);
  const CommunicationCost alone = data_cost(network_of(1), GridShape(2, 1, 1));
  EXPECT_NEAR(three.flow / alone.flow, 3.0, 1e-6);
}

TEST(NetworkCosts, IslandsMeetPlaceByPlace) {
  const GridShape grid(1, 1, 4);
  NetworkCosts costs(network_of(4), grid, /*islands=*/3);
  const GroupLabel label("islands", {}, Purpose::kMeetings);
  const CommunicationCost four = costs.cost("all_reduce", label, {1, 5, 9}, kLong);
  const CommunicationCost alone = data_cost(network_of(1), GridShape(3, 1, 1));
  EXPECT_NEAR(four.flow / alone.flow, 4.0, 1e-6);
}

// Everyone sends half of its bytes to the other leaf switch.
TEST(NetworkCosts, TaperedUplinksAreShared) {
  for (const bool nccl : {false, true}) {
    NetworkDescription full = network_of(2, nccl);
    full.nodes_of_leaf = 4;
    full.rates.distances.push_back(
        {.latency = 4e-6, .flow = kRate, .host = kRate, .block = 4 * kRate});
    NetworkDescription tapered = full;
    tapered.rates.distances[2].block = kRate;  // 4:1
    const GridShape grid(8, 1, 2);
    const double half = 2 * 4 * 4.0 / 8 * kLong / kRate;  // of two groups, out of four nodes
    EXPECT_NEAR(data_cost(tapered, grid, "all_to_all").flow, half, 1e-6 * half);
    EXPECT_LT(data_cost(full, grid, "all_to_all").flow, 0.5 * half);
    // A ring in the order of the nodes leaves a leaf once.
    if (nccl) {
      EXPECT_EQ(data_cost(tapered, grid).flow, data_cost(full, grid).flow);
    }
  }
}

TEST(NetworkCosts, MoreBytesAreNotFasterAndFasterLinksNotSlower) {
  const std::vector<GridShape> grids = {GridShape(4, 1, 1), GridShape(8, 1, 4), GridShape(32, 1, 1),
                                        GridShape(16, 2, 2)};
  for (const bool nccl : {false, true}) {
    NetworkDescription network = network_of(4, nccl);
    network.nodes_of_leaf = 2;
    network.rates.distances.push_back(
        {.latency = 4e-6, .flow = kRate, .host = kRate, .block = kRate});
    NetworkDescription faster = network;
    for (DistanceRates& one : faster.rates.distances) {
      one = {one.latency, 1.3 * one.flow, 1.3 * one.host, 1.3 * one.block};
    }
    faster.node_links.bytes_per_second *= 1.3;
    for (const GridShape& grid : grids) {
      NetworkCosts costs(network, grid), on_faster(faster, grid);
      for (const std::string& operation : kCollectives) {
        double before = 0.0;
        // Our algorithms change at sizes that depend on rates, and so do their segments, so short
        // collectives of MPI have steps.
        for (double bytes = nccl ? 16 : 2 << 20; bytes < 1e9; bytes *= 1.3) {
          const auto whole = static_cast<std::size_t>(bytes) / 256 * 256;
          const double seconds = total(data_cost(costs, grid, operation, whole));
          const double less = total(data_cost(on_faster, grid, operation, whole));
          ASSERT_GE(seconds, before * (1 - 1e-9)) << operation << " of " << whole << " bytes";
          ASSERT_LE(less, seconds * (1 + 1e-9)) << operation << " of " << whole << " bytes";
          before = seconds;
        }
      }
    }
  }
}

// Groups that lie alike cost the same, and so does the second call.
TEST(NetworkCosts, ThousandsOfRanksCostTheirClosedForm) {
  const GridShape grid(512, 1, 8);
  for (const bool gpus : {true, false}) {
    NetworkCosts costs(known_network("hdr200-fat-tree", 8, gpus), grid);
    for (const std::string& operation : kCollectives) {
      const double first = total(data_cost(costs, grid, operation));
      for (int place = 0; place < 8; ++place) {
        EXPECT_EQ(first,
                  total(costs.cost(operation, data_label(), grid.group(place, kDataAxes), kLong)));
      }
      EXPECT_GT(first, kLong * 511.0 / 512 / 25e9);
      const auto everyone = grid.group(0, kAllAxes);
      const CommunicationCost all = costs.cost(operation, {"all", kAllAxes}, everyone, kLong);
      EXPECT_GT(total(all), 0.0);
      EXPECT_TRUE(std::isfinite(total(all)));
    }
  }
}

// No size is beyond what is looked at, and twice the bytes take twice as long there.
TEST(NetworkCosts, TerabytesHaveACost) {
  const GridShape grid(8, 1, 1);
  for (const bool nccl : {false, true}) {
    NetworkCosts costs(network_of(1, nccl), grid);
    for (const std::string& operation : kCollectives) {
      const double one = total(data_cost(costs, grid, operation, std::size_t{1} << 42));
      const double two = total(data_cost(costs, grid, operation, std::size_t{1} << 43));
      EXPECT_NEAR(two / one, 2.0, 0.01) << operation;
      EXPECT_GT(one, 7.0 / 8 * std::exp2(42) / kRate * (1 - 1e-9)) << operation;
    }
  }
}

TEST(NetworkCosts, WhatMakesNoSenseIsRefused) {
  const auto message = [](const auto& change, bool nccl = false) {
    NetworkDescription network = network_of(2, nccl);
    change(network);
    return message_of<ConfigError>([&] { NetworkCosts(network, GridShape(2, 1, 1)); });
  };
  using Network = NetworkDescription;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  EXPECT_EQ(message([](Network& one) { one.rates.distances.clear(); }),
            "network test: it has no rates");
  for (const double rate : {0.0, -1.0, kNan, std::numeric_limits<double>::infinity()}) {
    EXPECT_EQ(message([&](Network& one) { one.rates.distances[1].flow = rate; }),
              fmt::format("network test: messages between nodes have {} bytes/s; a rate above 0 "
                          "is needed",
                          rate));
  }
  EXPECT_NE(message([](Network& one) { one.rates.distances[0].host = -1.0; }), "no error");
  EXPECT_NE(message([](Network& one) { one.rates.distances[1].latency = -1e-6; }), "no error");
  EXPECT_NE(message([](Network& one) { one.constants.efficiency = 0.0; }), "no error");
  EXPECT_NE(message([](Network& one) { one.constants.efficiency = 1.5; }), "no error");
  EXPECT_NE(message([](Network& one) { one.constants.start = -1.0; }), "no error");
  EXPECT_NE(message([](Network& one) { one.nodes_of_leaf = -1; }), "no error");
  EXPECT_NE(message([](Network& one) { one.node_links.bytes_per_second = 0.0; }, true), "no error");
  EXPECT_EQ(message([](Network& one) { one.ranks_of_node = 0; }),
            "network test: 0 ranks on a node; at least 1 is needed");
}

}  // namespace
}  // namespace trireme::plan
