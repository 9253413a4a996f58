// Which rank takes which place of the grid.
#include "trireme/topology/rank_order.h"

#include <algorithm>
#include <numeric>
#include <random>
#include <string>
#include <tuple>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/comm/collective_tasks.h"
#include "trireme/topology/simulated_world.h"

namespace trireme {
namespace {

using Order = std::vector<int>;

// Ranks on hosts of a fat tree: `hosts[rank]` is a number of make_fat_tree.
struct World {
  Fabric fabric{FabricSource::kMadeUp};
  std::vector<std::string> names;
  std::vector<int> vertices;

  World(std::vector<FatTreeLevel> levels, const std::vector<int>& hosts)
      : fabric(make_fat_tree(levels, 100.0)) {
    for (const int host : hosts) {
      names.push_back(fmt::format("host{}", host));
      vertices.push_back(*fabric.host(names.back()));
    }
  }
  TreeNetwork network() const { return {fabric, vertices, {}}; }
};

// Hosts in leaves of four, two to one.
std::vector<FatTreeLevel> leaves(int count) {
  return {{4, 200.0}, {count, 0.0}};
}

Order identity(int ranks) {
  Order order(static_cast<std::size_t>(ranks));
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// The least cost of all orders.
OrderCost least_cost(const GridShape& shape, const GridTraffic& traffic,
                     const TreeNetwork& network) {
  Order order = identity(shape.ranks());
  OrderCost least = cost_of_order(shape, traffic, network, order);
  while (std::next_permutation(order.begin(), order.end())) {
    const OrderCost cost = cost_of_order(shape, traffic, network, order);
    if (std::tie(cost.busiest, cost.total) < std::tie(least.busiest, least.total)) least = cost;
  }
  return least;
}

bool is_permutation_of_ranks(Order order, int ranks) {
  std::sort(order.begin(), order.end());
  return order == identity(ranks);
}

// The numbers of hosts at the places.
std::vector<std::string> names_at(const World& world, const Order& order) {
  std::vector<std::string> names;
  for (const int rank : order) names.push_back(world.names[static_cast<std::size_t>(rank)]);
  return names;
}

TEST(OrderCost, CountsWhatLeavesHostsAndLeaves) {
  // Two leaves of four hosts with one rank each. Links of hosts carry 100 bytes per second, the
  // ways up of leaves 200.
  const World world(leaves(2), {0, 1, 2, 3, 4, 5, 6, 7});
  const TreeNetwork network = world.network();
  // A sum of 80 bytes over eight: each rank exchanges 80 with its neighbour, then 40, then 20.
  const OrderCost sum = cost_of_order({8, 1, 1}, {.data = 80.0}, network, identity(8));
  EXPECT_DOUBLE_EQ(sum.busiest, 140.0 / 100.0);
  EXPECT_DOUBLE_EQ(sum.total, 2 * (8 * 1.4 + 2 * 4 * 20.0 / 200.0));
  EXPECT_EQ(sum.link, "out of host0");
  // Neighbours in different leaves.
  const OrderCost crossed =
      cost_of_order({8, 1, 1}, {.data = 80.0}, network, {0, 4, 1, 5, 2, 6, 3, 7});
  EXPECT_DOUBLE_EQ(crossed.busiest, 4 * 80.0 / 200.0);
  EXPECT_EQ(crossed.link, "out of the leaf switch of host0");
  // Stages in a row, whose ends share a matrix.
  const OrderCost row =
      cost_of_order({1, 8, 1}, {.pipeline = 30.0, .ends = 10.0}, network, identity(8));
  EXPECT_DOUBLE_EQ(row.busiest, 0.6);
  EXPECT_DOUBLE_EQ(row.total, 2 * (2 * 0.4 + 6 * 0.6 + 2 * 40.0 / 200.0));
  // Six are four pairs and singles: 0 with 1 and 2 with 3 first.
  const World six(leaves(2), {0, 1, 2, 3, 4, 5});
  const OrderCost folded = cost_of_order({6, 1, 1}, {.data = 80.0}, six.network(), identity(6));
  EXPECT_DOUBLE_EQ(folded.busiest, (80.0 + 80.0 + 40.0) / 100.0);
  EXPECT_DOUBLE_EQ(folded.total, 2 * ((2 * 2.0 + 2 * 0.8 + 2 * 1.2) + 2 * (40.0 + 40.0) / 200.0));
  // Inside a host everything is free.
  const World one(leaves(2), {3, 3, 3, 3});
  const OrderCost free =
      cost_of_order({2, 1, 2}, {.data = 80.0, .tensor = 9.0}, one.network(), identity(4));
  EXPECT_EQ(free.total, 0.0);
  EXPECT_EQ(free.link, "");
}

// The model counts the bytes that the algorithm really sends over each link.
TEST(OrderCost, IsTheLoadOfHalvingWithNeighboursFirst) {
  for (const int ranks : {4, 8, 6, 7}) {
    std::vector<int> hosts = identity(ranks);
    std::shuffle(hosts.begin(), hosts.end(), std::mt19937(5));
    const World world(leaves(2), hosts);
    const TreeNetwork network = world.network();
    const double bytes = 4096.0 * ranks * 16;
    SimulatedWorld simulated(network, {.contents = false});
    const auto make = [&](TransportPtr transport) {
      const Tensor data = simulated.tensor(static_cast<std::int64_t>(bytes / 4), DType::kF32);
      return make_collective(Collective::kAllReduce, Algorithm::kHalving, std::move(transport),
                             {.output = data});
    };
    const SimulatedWorld::Result result = simulated.run(ranks, make);
    double total = 0.0;
    for (std::size_t i = 0; i < result.link_bytes.size(); ++i) {
      total += result.link_bytes[i] / network.links()[i].bytes_per_second;
    }
    const OrderCost cost = cost_of_order({ranks, 1, 1}, {.data = bytes}, network, identity(ranks));
    EXPECT_NEAR(cost.total / total, 1.0, 0.01) << ranks << " ranks";
  }
}

TEST(OrderCost, IsToldForEachCable) {
  // Two leaves of four hosts, one rank each, with two spines. One cable of the first leaf is half
  // as fast as the other.
  Fabric fabric(FabricSource::kMadeUp);
  std::vector<int> hosts;
  for (int i = 0; i < 8; ++i) {
    hosts.push_back(fabric.add_host(fmt::format("n{}", i)));
    fabric.add_cable({fabric.add_switch(i < 4 ? "leaf1" : "leaf2"), hosts.back(), 100.0});
  }
  for (const char* leaf : {"leaf1", "leaf2"}) {
    fabric.add_cable({fabric.add_switch("spine1"), fabric.add_switch(leaf), 50.0});
    fabric.add_cable({fabric.add_switch("spine2"), fabric.add_switch(leaf), 100.0});
  }
  fabric.find_levels();
  const GridShape shape{8, 1, 1};
  const std::vector<double> bytes = bytes_of_cables(shape, {.data = 1200.0}, fabric, hosts);
  // Each host sends n, n/2 and n/4; the last of these leaves the leaf, for each of its four hosts.
  const std::vector<double> expected = {2100, 2100, 2100, 2100, 2100, 2100,
                                        2100, 2100, 400,  800,  400,  800};
  ASSERT_EQ(bytes.size(), expected.size());
  for (std::size_t i = 0; i < bytes.size(); ++i) EXPECT_NEAR(bytes[i], expected[i], 1e-6) << i;
  // The same as the cost of the order.
  const OrderCost cost =
      cost_of_order(shape, {.data = 1200.0}, TreeNetwork(fabric, hosts, {}), identity(8));
  EXPECT_NEAR(cost.busiest, 21.0, 1e-9);
  EXPECT_NEAR(cost.total, 2 * (8 * 21.0 + 2 * 8.0), 1e-6);
}

TEST(RankOrder, KeepsTheLaunchersWhereNothingIsCheaper) {
  const World world(leaves(2), {0, 0, 1, 1, 4, 4, 5, 5});
  const RankOrder order =
      order_ranks({4, 1, 2}, {.data = 10.0, .tensor = 100.0}, world.network(), world.names);
  EXPECT_EQ(order.ranks, identity(8));
  EXPECT_TRUE(order.exact);
  EXPECT_EQ(order.chosen.busiest, order.launcher.busiest);
}

TEST(RankOrder, PutsTheDimensionOfMostTrafficInsideNodes) {
  // A launcher that deals ranks out over the nodes.
  const World world(leaves(2), {0, 1, 4, 5, 0, 1, 4, 5});
  const RankOrder tensor =
      order_ranks({4, 1, 2}, {.data = 10.0, .tensor = 100.0}, world.network(), world.names);
  const std::vector<std::string> at = names_at(world, tensor.ranks);
  for (std::size_t place = 0; place < 8; place += 2) EXPECT_EQ(at[place], at[place + 1]) << place;
  EXPECT_LT(tensor.chosen.busiest, 0.2 * tensor.launcher.busiest);
  // Where gradients outweigh the rest, neighbours of their sum share a node.
  const World block(leaves(2), {0, 0, 1, 1, 4, 4, 5, 5});
  const RankOrder data =
      order_ranks({4, 1, 2}, {.data = 100.0, .tensor = 10.0}, block.network(), block.names);
  const std::vector<std::string> where = names_at(block, data.ranks);
  EXPECT_EQ(where[0], where[2]);  // (0, 0) and (1, 0)
  EXPECT_NE(where[0], where[1]);
}

TEST(RankOrder, IsExactForFewRanks) {
  std::mt19937 random(3);
  const GridShape shapes[] = {{6, 1, 1}, {3, 2, 1}, {2, 1, 3}, {1, 6, 1}, {7, 1, 1}};
  for (const GridShape& shape : shapes) {
    std::vector<int> hosts;
    for (int rank = 0; rank < shape.ranks(); ++rank) {
      hosts.push_back(static_cast<int>(random() % 4) * 3 % 8);
    }
    const World world(leaves(2), hosts);
    const GridTraffic traffic{.data = 1.0 + static_cast<double>(random() % 100),
                              .pipeline = 1.0 + static_cast<double>(random() % 100),
                              .tensor = 1.0 + static_cast<double>(random() % 100)};
    const RankOrder order = order_ranks(shape, traffic, world.network(), world.names);
    const OrderCost least = least_cost(shape, traffic, world.network());
    EXPECT_TRUE(order.exact) << shape.to_string();
    EXPECT_NEAR(order.chosen.busiest, least.busiest, 1e-5 * least.busiest) << shape.to_string();
    EXPECT_NEAR(order.chosen.total, least.total, 1e-5 * least.total) << shape.to_string();
  }
}

TEST(RankOrder, NeverCostsMoreThanTheLaunchers) {
  std::mt19937 random(11);
  for (int trial = 0; trial < 60; ++trial) {
    const auto draw = [&](int below) {
      return static_cast<int>(random() % static_cast<unsigned>(below));
    };
    const GridShape shape{1 + draw(5), 1 + draw(3), 1 + draw(4)};
    std::vector<int> hosts;
    for (int rank = 0; rank < shape.ranks(); ++rank) hosts.push_back(draw(16));
    const World world({{4, 1.0 + draw(400)}, {4, 0.0}}, hosts);
    const GridTraffic traffic{.data = static_cast<double>(draw(100)),
                              .pipeline = static_cast<double>(draw(100)),
                              .tensor = static_cast<double>(draw(100)),
                              .ends = static_cast<double>(draw(100))};
    const TreeNetwork network = world.network();
    const RankOrder order = order_ranks(shape, traffic, network, world.names);
    ASSERT_TRUE(is_permutation_of_ranks(order.ranks, shape.ranks()));
    const OrderCost launcher = cost_of_order(shape, traffic, network, identity(shape.ranks()));
    const OrderCost chosen = cost_of_order(shape, traffic, network, order.ranks);
    EXPECT_LE(chosen.busiest, launcher.busiest * (1 + 1e-6)) << trial;
    EXPECT_EQ(chosen.busiest, order.chosen.busiest);
    EXPECT_EQ(launcher.busiest, order.launcher.busiest);
    EXPECT_EQ(order_ranks(shape, traffic, network, world.names).ranks, order.ranks);
  }
}

TEST(RankOrder, UndoesAnyOrderOfTheNodes) {
  const GridShape shape{8, 2, 2};
  const GridTraffic traffic{.data = 100.0, .pipeline = 20.0, .tensor = 500.0};
  std::vector<int> hosts;
  for (int rank = 0; rank < 32; ++rank) hosts.push_back(rank / 4);
  const World in_order(leaves(2), hosts);
  const OrderCost best = order_ranks(shape, traffic, in_order.network(), in_order.names).chosen;
  for (unsigned seed = 0; seed < 5; ++seed) {
    std::vector<int> shuffled = hosts;
    std::shuffle(shuffled.begin(), shuffled.end(), std::mt19937(seed));
    const World world(leaves(2), shuffled);
    const RankOrder order = order_ranks(shape, traffic, world.network(), world.names);
    EXPECT_NEAR(order.chosen.busiest, best.busiest, 1e-6 * best.busiest) << seed;
    EXPECT_LT(order.chosen.busiest, 0.7 * order.launcher.busiest) << seed;
  }
}

TEST(RankOrder, TakesBlocksAndHostsByName) {
  // Leaf of host0 to host3, then that of host8 to host11; host9 before host10.
  const World world(leaves(3), {10, 2, 9, 1, 10, 2});
  EXPECT_EQ(fabric_order(world.network(), world.names), (Order{3, 1, 5, 2, 0, 4}));
}

TEST(RankOrder, OfThousandsOfRanksIsFound) {
  // 512 nodes of eight, dealt out; leaves of sixteen nodes.
  std::vector<int> hosts;
  for (int rank = 0; rank < 4096; ++rank) hosts.push_back(rank % 512);
  const World world({{16, 800.0}, {32, 0.0}}, hosts);
  const RankOrder order =
      order_ranks({128, 4, 8}, {.data = 100.0, .pipeline = 20.0, .tensor = 500.0}, world.network(),
                  world.names);
  ASSERT_TRUE(is_permutation_of_ranks(order.ranks, 4096));
  for (std::size_t place = 0; place < 4096; ++place) {
    EXPECT_EQ(order.ranks[place] % 512, order.ranks[place / 8 * 8] % 512) << place;
  }
}

std::string refusal(const std::string& text, const std::vector<std::string>& hosts) {
  try {
    read_rank_order(text, "grid.order F", hosts);
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(OrderFile, ListsRanksOrNodes) {
  const std::vector<std::string> hosts = {"n1", "n2", "n1", "n2"};
  EXPECT_EQ(read_rank_order("3\n1\n# all\n\n 0 # first\r\n2", "F", hosts), (Order{3, 1, 0, 2}));
  EXPECT_EQ(read_rank_order("n2\nn1\n", "F", hosts), (Order{1, 3, 0, 2}));
  EXPECT_EQ(read_rank_order("7\n8\n", "F", {"8", "7"}), (Order{1, 0}));
}

TEST(OrderFile, NamesNodesWithOrWithoutTheirDomain) {
  EXPECT_EQ(read_rank_order("b\na", "f", {"a.site.org", "b.site.org", "a.site.org"}),
            (Order{1, 0, 2}));
}

TEST(OrderFile, IsRefusedInOneLine) {
  const std::vector<std::string> hosts = {"n1", "n2", "n1", "n2"};
  EXPECT_EQ(refusal("# none\n", hosts), "grid.order F: no line names a rank or a node");
  EXPECT_EQ(refusal("0\n1\n2\n", hosts),
            "grid.order F: lists 3 of 4 ranks: each must be listed once");
  EXPECT_EQ(refusal("0\n1\n1\n2\n", hosts),
            "grid.order F, line 3: rank 1 stands in line 2 already");
  EXPECT_EQ(refusal("0\n4\n", hosts), "grid.order F, line 2: 4 is not a rank: there are 0 to 3");
  EXPECT_EQ(refusal("0\n-1\n", hosts), "grid.order F, line 2: -1 is not a rank: there are 0 to 3");
  EXPECT_EQ(refusal("0\n99999999999999999999\n", hosts),
            "grid.order F, line 2: 99999999999999999999 is not a rank: there are 0 to 3");
  EXPECT_EQ(refusal("0\none\n", hosts), "grid.order F, line 2: 'one' is not a rank");
  EXPECT_EQ(
      refusal("n1\nn3\n", hosts),
      "grid.order F, line 2: 'n3' is neither a rank nor a node of this run, which is on n1, n2");
  EXPECT_EQ(refusal("n1\nn1\n", hosts), "grid.order F, line 2: node 'n1' stands in line 1 already");
  EXPECT_EQ(refusal("n1\n", hosts),
            "grid.order F: lists 1 of 2 nodes, not 'n2': each must be listed once");
}

TEST(Places, AreToldByNode) {
  const std::vector<std::string> hosts = {"n1", "n2", "n1", "n2"};
  EXPECT_EQ(describe_places({0, 2, 1, 3}, hosts), "n1: 0-1, n2: 2-3");
  EXPECT_EQ(describe_places({3, 0, 2, 1}, hosts), "n2: 0 3, n1: 1-2");
}

}  // namespace
}  // namespace trireme
