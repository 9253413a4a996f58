// The closed forms of NCCL's algorithms, and the tables that follow from them.
#include "trireme/topology/nccl_costs.h"

#include <string>
#include <vector>

#include <gtest/gtest.h>

namespace trireme {
namespace {

constexpr auto kAllReduce = NcclCollective::kAllReduce;
constexpr auto kAllGather = NcclCollective::kAllGather;
constexpr NcclCell kRing{NcclAlgorithm::kRing, NcclProtocol::kSimple};
constexpr NcclCell kTree{NcclAlgorithm::kTree, NcclProtocol::kSimple};
constexpr double kHop = 6e-6;  // of the simple protocol
constexpr double kRate = 10e9, kLatency = 2e-6;

// `per_node` ranks on each node; node i is below leaf leaf_of[i].
RankBlocks blocks_of(const std::vector<int>& leaf_of, int per_node) {
  std::vector<std::vector<int>> tiers(2);
  for (std::size_t node = 0; node < leaf_of.size(); ++node) {
    for (int i = 0; i < per_node; ++i) {
      tiers[0].push_back(static_cast<int>(node));
      tiers[1].push_back(leaf_of[node]);
    }
  }
  const int ranks = static_cast<int>(tiers[0].size());
  return {ranks, tiers};
}

// Nodes send kRate; a leaf sends `uplinks` times that.
NetworkRates rates_of(double uplinks) {
  NetworkRates rates;
  rates.distances = {{1e-7, 50e9, 0.0, 0.0},
                     {kLatency, kRate, kRate, 0.0},
                     {kLatency, kRate, kRate, uplinks * kRate}};
  return rates;
}

double time_of(const NcclGroup& group, NcclCollective collective, NcclCell cell,
               std::uint64_t bytes) {
  return nccl_seconds(group, collective, cell, bytes).value_or(-1.0);
}

TEST(NcclCosts, TheRingIsTheTextbooks) {
  const NcclGroup group = nccl_group(blocks_of({0, 0, 0, 0}, 1), rates_of(4));
  constexpr double kBytes = 1 << 24;
  EXPECT_NEAR(time_of(group, kAllReduce, kRing, 1 << 24),
              6 * (kLatency + kHop) + 1.5 * kBytes / kRate, 1e-9);
  EXPECT_NEAR(time_of(group, kAllGather, kRing, 1 << 24),
              3 * (kLatency + kHop) + 0.75 * kBytes / kRate, 1e-9);
  EXPECT_NEAR(time_of(group, NcclCollective::kBroadcast, kRing, 1 << 24),
              3 * (kLatency + kHop) + kBytes / kRate, 1e-9);
}

// In a ring that follows the leaves one byte leaves each leaf; in one that alternates, all do.
TEST(NcclCosts, AWrongOrderCostsWhatUplinksLack) {
  const auto time = [](const std::vector<int>& leaf_of) {
    return time_of(nccl_group(blocks_of(leaf_of, 1), rates_of(1)), kAllReduce, kRing, 1 << 30);
  };
  EXPECT_NEAR(time({0, 1, 0, 1, 0, 1, 0, 1}) / time({0, 0, 0, 0, 1, 1, 1, 1}), 4.0, 0.01);
}

// With four nodes both trees are chains of depth 2; a node sends to its parent and its children.
TEST(NcclCosts, TheTreeSendsUpAndDown) {
  const NcclGroup group = nccl_group(blocks_of({0, 0, 0, 0}, 1), rates_of(4));
  EXPECT_NEAR(group.tree.hops, 4.0, 1e-12);
  EXPECT_NEAR(group.tree.latency, 4 * kLatency, 1e-12);
  EXPECT_NEAR(group.tree.seconds_per_byte, 2.0 / kRate, 1e-15);
  // Its hops grow with the logarithm.
  const NcclGroup large = nccl_group(blocks_of(std::vector<int>(64), 1), rates_of(64));
  EXPECT_LE(large.tree.hops, 2 * 7);
  EXPECT_NEAR(large.ring.hops, 64.0, 1e-12);
  EXPECT_LT(time_of(large, kAllReduce, kTree, 1 << 20), time_of(large, kAllReduce, kRing, 1 << 20));
  EXPECT_GT(time_of(large, kAllReduce, kTree, 1u << 31),
            time_of(large, kAllReduce, kRing, 1u << 31));
}

// Every node of every number of them is in both trees once.
TEST(NcclCosts, TreesReachAllNodes) {
  for (int nodes = 2; nodes <= 70; ++nodes) {
    const NcclGroup group =
        nccl_group(blocks_of(std::vector<int>(static_cast<std::size_t>(nodes)), 1), rates_of(64));
    EXPECT_GE(group.tree.hops, 2.0) << nodes;
    EXPECT_LE(group.tree.hops, 14.0) << nodes;
    EXPECT_LE(group.tree.seconds_per_byte * kRate, 2.0 + 1e-9) << nodes;
  }
}

// The middle one of three leaves has most nodes, and most bytes leave it.
TEST(NcclCosts, TheBusiestLeafDecides) {
  const NcclGroup group = nccl_group(blocks_of({0, 1, 1, 1, 2}, 1), rates_of(1));
  ASSERT_TRUE(group.pat);
  // At distance 2 two of its nodes send 2/5 out of it, at 4 and at 1 one sends 1/5.
  EXPECT_NEAR(group.pat->seconds_per_byte * kRate, 1.2, 1e-9);
  // Where nothing limits the leaves, the nodes do: they send 1/5, 2/5 and 1/5.
  const NcclGroup free = nccl_group(blocks_of({0, 1, 1, 1, 2}, 1), rates_of(0));
  EXPECT_NEAR(free.pat->seconds_per_byte * kRate, 0.8, 1e-9);
}

// The farthest ranks exchange least, so tapered uplinks hurt it less than a ring in a bad order.
TEST(NcclCosts, ParallelTreesSendMostBytesNear) {
  const NcclGroup group = nccl_group(blocks_of({0, 0, 0, 0, 1, 1, 1, 1}, 1), rates_of(1));
  ASSERT_TRUE(group.pat);
  EXPECT_NEAR(group.pat->hops, 3.0, 1e-12);
  // A leaf sends out: 4 nodes 1/8 each at distance 4, 2 nodes 2/8 at distance 2, 1 node 4/8.
  EXPECT_NEAR(group.pat->seconds_per_byte * kRate, 1.5, 1e-9);
  const NcclCell pat{NcclAlgorithm::kPat, NcclProtocol::kSimple};
  EXPECT_GT(time_of(group, kAllGather, pat, 1 << 20), 0.0);
  EXPECT_EQ(time_of(group, kAllReduce, pat, 1 << 20), -1.0);
  EXPECT_FALSE(nccl_group(blocks_of({0, 1}, 2), rates_of(1)).pat);
}

TEST(NcclCosts, SeveralRanksOfANodeShareItsWayOut) {
  const NcclGroup group = nccl_group(blocks_of({0, 0}, 4), rates_of(2), {1e-6, 1e9});
  EXPECT_EQ(group.ranks, 8u);
  EXPECT_EQ(group.nodes, 2u);
  EXPECT_NEAR(group.ring.node_hops, 6.0, 1e-12);
  // GPUs that reach each other slowly bind.
  constexpr double kBytes = 1 << 26;
  const double part = 7.0 / 8;
  EXPECT_NEAR(time_of(group, kAllReduce, kRing, 1 << 26),
              2 * part * (2 * (kLatency + kHop) + 6 * (1e-6 + kHop)) + 2 * part * kBytes / 1e9,
              1e-9);
}

// All ranks of a node together may send faster than one message does.
TEST(NcclCosts, ANodeSendsAtTheRateOfAllItsRanks) {
  NetworkRates rates = rates_of(4);
  for (DistanceRates& each : rates.distances) each.flow = kRate / 2;
  EXPECT_NEAR(nccl_group(blocks_of({0, 0}, 2), rates).ring.seconds_per_byte, 1.0 / kRate, 1e-15);
  for (DistanceRates& each : rates.distances) each.host = 0.0;
  EXPECT_NEAR(nccl_group(blocks_of({0, 0}, 2), rates).ring.seconds_per_byte, 2.0 / kRate, 1e-15);
}

TEST(NcclCosts, KnowsNothingOfSwitchesThatAddUp) {
  const NcclGroup group = nccl_group(blocks_of({0, 1}, 1), rates_of(1));
  for (const auto algorithm : {NcclAlgorithm::kCollnetDirect, NcclAlgorithm::kCollnetChain,
                               NcclAlgorithm::kNvls, NcclAlgorithm::kNvlsTree}) {
    EXPECT_FALSE(nccl_seconds(group, kAllReduce, {algorithm, NcclProtocol::kSimple}, 1024));
  }
  EXPECT_FALSE(nccl_seconds(group, kAllGather, kTree, 1024));
}

// The first cell of a rule.
std::string best(const NcclTable& table, NcclCollective collective, std::uint64_t bytes) {
  for (const NcclRule& rule : table.rules) {
    if (rule.collective != collective || bytes > rule.most_bytes) continue;
    return std::string(name_of(rule.cells.at(0).algorithm)) + "/" +
           std::string(name_of(rule.cells.at(0).protocol));
  }
  return "none";
}

TEST(NcclTables, FollowSizeAndOrder) {
  const std::vector<int> in_order{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1};
  const auto table_of = [](const std::vector<int>& leaf_of) {
    return make_nccl_tables({nccl_group(blocks_of(leaf_of, 1), rates_of(2))}).at(0);
  };
  const NcclTable table = table_of(in_order);
  EXPECT_EQ(table.ranks, 16u);
  EXPECT_EQ(table.nodes, 16u);
  EXPECT_EQ(best(table, kAllReduce, 1000), "tree/ll");
  EXPECT_EQ(best(table, kAllReduce, 1 << 20), "tree/ll128");
  EXPECT_EQ(best(table, kAllReduce, ~std::uint64_t{0}), "ring/simple");
  EXPECT_EQ(best(table, NcclCollective::kBroadcast, 1000), "ring/ll");
  // Where neighbours are below different leaves the ring gets far slower than the tree.
  const NcclTable wrong = table_of({0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1, 0, 1});
  EXPECT_EQ(best(wrong, kAllReduce, 1 << 30), "tree/simple");
  // Every rule ends with a cell that NCCL has.
  for (const NcclRule& rule : table.rules) {
    EXPECT_EQ(rule.cells.back().protocol, NcclProtocol::kSimple);
  }
  std::string problem;
  EXPECT_EQ(read_nccl_tables(write_nccl_tables({table}), problem), std::vector{table}) << problem;
}

TEST(NcclTables, OneForEachSizeAndNoneWithinANode) {
  const NcclGroup fine = nccl_group(blocks_of({0, 0, 1, 1}, 1), rates_of(2));
  const NcclGroup slow = nccl_group(blocks_of({0, 1, 0, 1}, 1), rates_of(0.25));
  const NcclGroup inside = nccl_group(blocks_of({0}, 4), rates_of(1));
  const NcclGroup wide = nccl_group(blocks_of({0, 1}, 2), rates_of(1));
  EXPECT_EQ(make_nccl_tables({inside}), std::vector<NcclTable>());
  const auto tables = make_nccl_tables({fine, slow, inside, wide});
  ASSERT_EQ(tables.size(), 2u);
  EXPECT_EQ(tables[0].nodes, 2u);
  EXPECT_EQ(tables[1].nodes, 4u);
  // The slowest of equal size decides, in whatever order they come.
  EXPECT_EQ(tables[1], make_nccl_tables({slow}).at(0));
  EXPECT_EQ(make_nccl_tables({slow, fine}), make_nccl_tables({fine, slow}));
  EXPECT_NE(tables[1], make_nccl_tables({fine}).at(0));
}

TEST(NcclTables, FollowMeasuredRates) {
  StoredRates stored;
  stored.rates = rates_of(1);
  stored.hosts = {"n1", "n2", "n3", "n4"};
  stored.tiers = {{0, 0, 1, 1}};
  const auto tables = [&stored](const std::vector<std::string>& hosts) {
    std::string problem;
    return read_nccl_tables(nccl_table_text(stored, hosts), problem).value();
  };
  const auto whole = tables({"n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"});
  ASSERT_EQ(whole.size(), 1u);
  EXPECT_EQ(whole[0], make_nccl_tables({nccl_group(blocks_of({0, 0, 1, 1}, 2), rates_of(1))})[0]);
  EXPECT_EQ(whole[0].ranks, 8u);
  EXPECT_EQ(whole[0].nodes, 4u);
  // Neighbours below different leaves: each passes the uplinks.
  const auto mixed = tables({"n1", "n3", "n2", "n4"});
  EXPECT_EQ(mixed.at(0),
            make_nccl_tables({nccl_group(blocks_of({0, 1, 0, 1}, 1), rates_of(1))})[0]);
  EXPECT_EQ(tables({"n2", "n2"}), std::vector<NcclTable>());
}

// What a run writes is a table again.
TEST(NcclTables, AreJoinedToOneOfEachSize) {
  const auto text = [](const std::vector<int>& leaves, int ranks_per_node) {
    return nccl_table_text(blocks_of(leaves, ranks_per_node), rates_of(1));
  };
  const std::string one = text({0, 0, 1, 1}, 1), other = text({0, 1, 0, 1}, 1),
                    larger = text({0, 0, 1, 1}, 2);
  ASSERT_NE(one, other);
  const std::string joined = join_nccl_tables({{"data", one},
                                               {"model", larger},
                                               {"pipeline", one},
                                               {"tensor", text({0}, 2)},
                                               {"tied", other}});
  std::string problem;
  const auto tables = read_nccl_tables(joined, problem);
  ASSERT_TRUE(tables) << problem << joined;
  ASSERT_EQ(tables->size(), 2u);
  EXPECT_EQ(tables->at(0), read_nccl_tables(one, problem)->at(0));
  EXPECT_EQ(tables->at(1), read_nccl_tables(larger, problem)->at(0));
  EXPECT_NE(joined.find("\n# data: 4 ranks on 4 nodes\n# model: 8 ranks on 4 nodes\n# pipeline: 4 "
                        "ranks on 4 nodes\n# tied: 4 ranks on 4 nodes, with a table of its own:\n# "
                        "trireme-nccl-table 1\n"),
            std::string::npos)
      << joined;
  EXPECT_EQ(join_nccl_tables({{"tensor", text({0}, 2)}}), "");
}

}  // namespace
}  // namespace trireme
