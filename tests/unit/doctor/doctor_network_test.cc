// What doctor says of ports, cables and messages by comparing nodes with each other and with a
// description of the fabric.
#include <algorithm>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/comm/rank_blocks.h"
#include "trireme/doctor/doctor.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/probe.h"

#include "support/doctor_nodes.h"

namespace trireme {
namespace {

using testing::good_node;
using testing::summary;

// A node with two ports of an adapter.
NodeFindings node_with_ports(const std::string& name, const std::string& rate, double bytes,
                             const std::string& state = "ACTIVE") {
  NodeFacts facts = good_node();
  LocalPort port{.adapter = "mlx5_0",
                 .number = 1,
                 .state = state,
                 .physical_state = state == "ACTIVE" ? "LinkUp" : "Polling",
                 .link_layer = "InfiniBand",
                 .rate = rate,
                 .bytes_per_second = bytes,
                 .subnet = {},
                 .cpus = {}};
  facts.ports = {port};
  return node_findings_from(to_json({name, diagnose(facts), facts.ports}));
}

const Finding& on(const NodeFindings& node, const std::string& subject) {
  return *std::ranges::find(node.findings, subject, &Finding::subject);
}

TEST(Doctor, NamesAPortAtHalfWidth) {
  const std::string whole = "200 Gb/sec (4X HDR)", half = "100 Gb/sec (2X HDR)";
  std::vector<NodeFindings> nodes = {node_with_ports("n1", whole, 25e9),
                                     node_with_ports("n2", half, 12.5e9),
                                     node_with_ports("n3", whole, 25e9)};
  EXPECT_EQ(on(nodes[1], "port mlx5_0/1").verdict, Verdict::kOk);  // nothing to compare it with
  compare_ports(nodes);
  EXPECT_EQ(on(nodes[0], "port mlx5_0/1").verdict, Verdict::kOk);
  EXPECT_EQ(on(nodes[1], "port mlx5_0/1").verdict, Verdict::kProblem);
  EXPECT_EQ(on(nodes[1], "port mlx5_0/1").what, half + ", but other nodes have " + whole);
  EXPECT_NE(summary(nodes).find("on n2: " + half + ", but other nodes have " + whole),
            std::string::npos);
  // A cluster whose ports all have half the width was built so.
  nodes = {node_with_ports("n1", half, 12.5e9), node_with_ports("n2", half, 12.5e9)};
  compare_ports(nodes);
  EXPECT_EQ(on(nodes[1], "port mlx5_0/1").verdict, Verdict::kOk);
}

TEST(Doctor, NamesAPortThatIsDown) {
  const std::string rate = "200 Gb/sec (4X HDR)";
  std::vector<NodeFindings> nodes = {node_with_ports("n1", rate, 25e9),
                                     node_with_ports("n2", rate, 25e9),
                                     node_with_ports("n3", "10 Gb/sec (4X SDR)", 1e9, "DOWN")};
  EXPECT_EQ(on(nodes[2], "port mlx5_0/1").verdict, Verdict::kWarning);
  compare_ports(nodes);
  EXPECT_EQ(on(nodes[2], "port mlx5_0/1").verdict, Verdict::kProblem);
  EXPECT_EQ(on(nodes[2], "port mlx5_0/1").what, "DOWN (Polling), but it is ACTIVE on 2 of 3 nodes");
  nodes.erase(nodes.begin() + 1);
  nodes[0] = node_with_ports("n1", rate, 25e9, "DOWN");  // nobody uses it
  nodes[1] = node_with_ports("n3", rate, 25e9, "DOWN");
  compare_ports(nodes);
  EXPECT_EQ(on(nodes[1], "port mlx5_0/1").verdict, Verdict::kWarning);
}

// Four hosts at two leaves, which two cables of each connect with a spine. `text` is replaced by
// `other`.
Fabric fabric_of_cables(const std::string& text, const std::string& other) {
  std::string dump;
  const auto add_switch = [&](int number, const std::string& name) {
    dump += fmt::format("Switch\t8 \"S-{:016x}\"\t# \"{}\"\n", number, name);
  };
  for (const int leaf : {1, 2}) {
    add_switch(leaf, fmt::format("leaf{}", leaf));
    for (const int uplink : {1, 2}) {
      dump += fmt::format("[{}]\t\"S-{:016x}\"[{}]\t# uplink {} of leaf{} 4xHDR\n", 4 + uplink, 3,
                          2 * leaf + uplink, uplink, leaf);
    }
  }
  add_switch(3, "spine");
  for (int host = 1; host <= 4; ++host) {
    dump += fmt::format(
        "Ca\t1 \"H-{:016x}\"\t# \"n{} mlx5_0\"\n[1](b{}) \t\"S-{:016x}\"[{}]\t# of n{} 4xHDR\n",
        16 * host, host, host, (host + 1) / 2, host, host);
  }
  const std::size_t at = dump.find(text);
  EXPECT_NE(at, std::string::npos) << text;
  return read_ibnetdiscover(dump.replace(at, text.size(), other), "dump");
}

TEST(Doctor, ComparesPortsWithTheCablesOfADump) {
  const std::string whole = "200 Gb/sec (4X HDR)", half = "100 Gb/sec (2X HDR)";
  const auto job = [&](const std::string& rate, double bytes, const char* state = "ACTIVE") {
    return std::vector<NodeFindings>{node_with_ports("n1", rate, bytes, state),
                                     node_with_ports("n2", rate, bytes, state)};
  };
  std::vector<NodeFindings> nodes = job(whole, 25e9);
  EXPECT_TRUE(compare_with_cables(nodes, fabric_of_cables("of n1 4xHDR", "of n1 4xHDR")).empty());
  EXPECT_EQ(on(nodes[0], "port mlx5_0/1").verdict, Verdict::kOk);
  EXPECT_DOUBLE_EQ(nodes[0].cable_bytes_per_second, 25e9);
  // All nodes of the job may be slow.
  nodes = job(half, 12.5e9);
  compare_ports(nodes);
  compare_with_cables(nodes, fabric_of_cables("of n1 4xHDR", "of n1 4xHDR"));
  for (const NodeFindings& node : nodes) {
    EXPECT_EQ(on(node, "port mlx5_0/1").verdict, Verdict::kProblem);
    EXPECT_EQ(on(node, "port mlx5_0/1").what,
              half + ", but ibnetdiscover says that its cable has 200 Gbit/s");
  }
  // The GUID of an adapter, which travels as text, says more than its name.
  nodes[0].ports[0].guid = 0x99;
  nodes[0] = node_findings_from(to_json(nodes[0]));
  nodes[0].findings = nodes[1].findings = {};
  compare_with_cables(nodes, fabric_of_cables("of n1 4xHDR", "of n1 4xHDR"));
  EXPECT_TRUE(nodes[0].findings.empty());
  EXPECT_EQ(nodes[1].findings.size(), 1u);
  // A dump that was made with the cable as it is now: the neighbour at the leaf tells.
  nodes = job(half, 12.5e9);
  compare_with_cables(nodes, fabric_of_cables("of n1 4xHDR", "of n1 2xHDR"));
  EXPECT_EQ(on(nodes[0], "port mlx5_0/1").what,
            half + ", but usual at leaf1 (0000000000000001) is 200 Gbit/s");
  // Here the dump is older than the repair.
  nodes = job(whole, 25e9);
  compare_with_cables(nodes, fabric_of_cables("of n1 4xHDR", "of n1 2xHDR"));
  EXPECT_EQ(on(nodes[0], "port mlx5_0/1").verdict, Verdict::kOk);
  nodes = job(whole, 25e9, "DOWN");
  compare_with_cables(nodes, fabric_of_cables("of n1 4xHDR", "of n1 4xHDR"));
  EXPECT_EQ(on(nodes[1], "port mlx5_0/1").what,
            "DOWN (Polling), but ibnetdiscover has a cable of 200 Gbit/s there");
}

TEST(Doctor, ComparesCablesWithTheirNeighbours) {
  // Nothing is known of the ports here.
  std::vector<NodeFindings> nodes = {{"n1", {}}, {"n3", {}}, {"elsewhere", {}}};
  auto between = compare_with_cables(nodes, fabric_of_cables("of n1 4xHDR", "of n1 2xHDR"));
  EXPECT_TRUE(between.empty());
  ASSERT_EQ(nodes[0].findings.size(), 1u);
  EXPECT_EQ(nodes[0].findings[0].subject, "cable mlx5_0");
  EXPECT_EQ(nodes[0].findings[0].what,
            "ibnetdiscover says that its cable has 100 Gbit/s; usual at leaf1 (0000000000000001) "
            "is 200 Gbit/s");
  EXPECT_TRUE(nodes[1].findings.empty());
  ASSERT_EQ(nodes[2].findings.size(), 1u);
  EXPECT_EQ(nodes[2].findings[0].verdict, Verdict::kNotHere);
  nodes = {{"n2", {}}, {"n3", {}}};
  const std::string uplink = "uplink 2 of leaf2 4xHDR";
  between = compare_with_cables(nodes, fabric_of_cables(uplink, "uplink 2 of leaf2 2xHDR"));
  ASSERT_EQ(between.size(), 1u);
  EXPECT_EQ(between[0].verdict, Verdict::kWarning);
  EXPECT_EQ(between[0].what,
            "leaf2 (0000000000000002) to spine (0000000000000003): ibnetdiscover says 100 Gbit/s; "
            "usual from switches of level 1 is 200 Gbit/s");
  // Messages have the cable's rate as their limit.
  Probe probe;
  probe.streams = {{1, 0, 1, 5e9}, {1, 1, 0, 5e9}};
  judge_network(nodes, probe, {"n2", "n3"});
  EXPECT_EQ(on(nodes[0], "network").what, "5 GB/s of the 25 GB/s of its cable");
  // Hosts of one leaf need no uplink.
  nodes = {{"n3", {}}, {"n4", {}}};
  EXPECT_TRUE(
      compare_with_cables(nodes, fabric_of_cables(uplink, "uplink 2 of leaf2 2xHDR")).empty());
}

TEST(Doctor, NamesLeavesWithFewerCablesUp) {
  std::vector<NodeFindings> nodes = {{"n1", {}}, {"n3", {}}};
  const std::string uplink = "[6]\t\"S-0000000000000003\"[6]\t# uplink 2 of leaf2 4xHDR\n";
  const Fabric fabric = fabric_of_cables(uplink, "");
  const auto between = compare_with_cables(nodes, fabric);
  ASSERT_EQ(between.size(), 1u);
  EXPECT_EQ(between[0].verdict, Verdict::kWarning);
  EXPECT_EQ(between[0].subject, "taper");
  EXPECT_EQ(between[0].what, "leaf2 (0000000000000002): a taper of 2:1; usual is 1:1");
  // Nodes of one leaf need none.
  nodes = {{"n3", {}}, {"n4", {}}};
  EXPECT_TRUE(compare_with_cables(nodes, fabric).empty());
}

TEST(Doctor, FindsANodeWithoutANameByItsPorts) {
  const Fabric fabric = fabric_of_cables("\"n1 mlx5_0\"", "\"localhost mlx5_0\"");
  std::vector<NodeFindings> nodes = {node_with_ports("n1", "100 Gb/sec (2X HDR)", 12.5e9)};
  nodes[0].ports[0].guid = 0x10;
  compare_with_cables(nodes, fabric);
  EXPECT_EQ(on(nodes[0], "port mlx5_0/1").what,
            "100 Gb/sec (2X HDR), but ibnetdiscover says that its cable has 200 Gbit/s");
  nodes = {node_with_ports("n1", "100 Gb/sec (2X HDR)", 12.5e9)};
  nodes[0].ports[0].guid = 0x11;
  compare_with_cables(nodes, fabric);
  EXPECT_EQ(on(nodes[0], "cable").verdict, Verdict::kNotHere);
}

TEST(Doctor, ComparesMessagesWithThePort) {
  const std::string rate = "200 Gb/sec (4X HDR)";
  std::vector<NodeFindings> nodes = {node_with_ports("n1", rate, 25e9),
                                     node_with_ports("n2", rate, 25e9),
                                     node_with_ports("n3", rate, 25e9)};
  Probe probe;
  probe.streams = {{1, 0, 1, 24e9}, {1, 1, 0, 23e9}, {1, 0, 2, 3e9}, {1, 2, 1, 4e9}};
  probe.slow = {{-1, 2, "n3 receives", 3e9, 24e9},
                {0, 1, "leaf of n1 to leaf of n2", 1e9, 9e9, false}};
  judge_network(nodes, probe, {"n1", "n2", "n3"});
  EXPECT_EQ(on(nodes[0], "network").verdict, Verdict::kOk);
  EXPECT_EQ(on(nodes[0], "network").what, "24 GB/s by one message");
  EXPECT_EQ(on(nodes[2], "network").what, "n3 receives at 3 GB/s; usual is 24 GB/s");
  EXPECT_EQ(nodes[2].findings.back().what, "4 GB/s of the 25 GB/s of its port");
  const auto between = findings_between_nodes(probe);
  ASSERT_EQ(between.size(), 1u);
  EXPECT_NE(doctor_network(nodes, between)
                .find("\nwarning   network         leaf of n1 to leaf of n2 at 1 "
                      "GB/s; usual is 9 GB/s; see to the cables on the way\n"),
            std::string::npos);
}

TEST(Doctor, ComparesWhatALeafReachesWithItsCables) {
  const RankBlocks blocks(8, {{0, 0, 1, 1, 2, 2, 3, 3}, {0, 0, 0, 0, 1, 1, 1, 1}});
  const std::vector<std::string> hosts = {"n1", "n1", "n2", "n2", "n3", "n3", "n4", "n4"};
  const std::string uplink = "uplink 2 of leaf2 4xHDR";
  const Fabric fabric = fabric_of_cables(uplink, uplink);  // two cables of 25 GB/s a leaf
  Probe probe;
  const auto measured = [&](double host, double block) {
    probe.rates.distances = {{1e-6, 9e9, 9e9}, {1e-6, 9e9, host}, {1e-6, 9e9, host, block}};
    return compare_uplinks(probe, blocks, hosts, fabric);
  };
  auto found = measured(24e9, 47e9);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].verdict, Verdict::kOk);
  EXPECT_EQ(found[0].what,
            "the nodes below a leaf switch reach 376 Gbit/s together; its cables upwards have 400 "
            "Gbit/s, and the nodes could send 384 Gbit/s");
  // All leaves may be slow alike, so that none of them differs from the others.
  found = measured(24e9, 12e9);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].verdict, Verdict::kWarning);
  EXPECT_EQ(found[0].subject, "uplinks");
  // Cables so slow that one node alone fills them do not hide behind what it sends through them.
  probe.rates.distances = {{1e-6, 9e9, 9e9}, {1e-6, 24e9, 24e9}, {1e-6, 12e9, 12e9, 12e9}};
  found = compare_uplinks(probe, blocks, hosts, fabric);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].verdict, Verdict::kWarning);
  // Few or slow nodes cannot fill the cables.
  EXPECT_EQ(measured(3e9, 5e9)[0].verdict, Verdict::kOk);
  EXPECT_EQ(measured(3e9, 2e9)[0].verdict, Verdict::kWarning);
  // A leaf with a single node bounds what the others send to it.
  probe.rates.distances[2].host = 24e9, probe.rates.distances[2].block = 23e9;
  const RankBlocks unequal(3, {{0, 1, 2}, {0, 0, 1}});
  found = compare_uplinks(probe, unequal, {"n1", "n2", "n3"}, fabric);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].verdict, Verdict::kOk);
  // Nothing is said where something is not known: a rate, a node, or the measurement.
  EXPECT_TRUE(
      compare_uplinks(probe, blocks, hosts, fabric_of_cables(uplink, "uplink 2 of leaf2 somehow"))
          .empty());
  EXPECT_TRUE(
      compare_uplinks(probe, blocks, {"n1", "n1", "n2", "n2", "n3", "n3", "m4", "m4"}, fabric)
          .empty());
  probe.rates.distances.pop_back();
  EXPECT_TRUE(compare_uplinks(probe, blocks, hosts, fabric).empty());
}

TEST(Doctor, SaysWhatUnequalNodesLose) {
  std::vector<NodeFindings> nodes;
  for (const double speed : {40e9, 20e9, 20e9}) {
    NodeFacts facts = good_node();
    facts.node = "n" + std::to_string(nodes.size() + 1);
    nodes.push_back({facts.node, diagnose(facts), {}});
    nodes.back().products_per_second = speed;
  }
  compare_speeds(nodes);
  EXPECT_EQ(on(nodes[0], "speed").verdict, Verdict::kOk);
  EXPECT_EQ(on(nodes[0], "speed").what, "40 GFLOP/s in products on its processors");
  EXPECT_NE(summary(nodes).find(
                "warning   speed           on 2 nodes, n[2-3]: 20 GFLOP/s in products on its "
                "processors, where the fastest node has 40: equal shares of a step leave 25 % of "
                "all nodes' speed unused, shares by speed 0 %; take equal nodes, or batch.balance "
                "auto"),
            std::string::npos)
      << summary(nodes);
  // Where there is nothing to compare, it says nothing; small differences are usual.
  const auto said = [](std::vector<double> speeds) {
    std::vector<NodeFindings> some;
    for (const double speed : speeds) {
      some.push_back({"n", {}, {}});
      some.back().products_per_second = speed;
    }
    compare_speeds(some);
    std::vector<Verdict> verdicts;
    for (const NodeFindings& node : some) {
      for (const Finding& finding : node.findings) verdicts.push_back(finding.verdict);
    }
    return verdicts;
  };
  EXPECT_TRUE(said({1e9}).empty());
  EXPECT_TRUE(said({1e9, 0.0}).empty());
  EXPECT_EQ(said({1e9, 0.85e9}), (std::vector{Verdict::kOk, Verdict::kOk}));
  EXPECT_EQ(said({1e9, 0.5e9}), (std::vector{Verdict::kOk, Verdict::kWarning}));
  EXPECT_GT(measure_products(), 1e8);
}

}  // namespace
}  // namespace trireme
