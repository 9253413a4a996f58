// Readers of a cluster's descriptions.
#include "trireme/topology/fabric.h"

#include <algorithm>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/node_names.h"
#include "trireme/base/resident_memory.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/fabric_summary.h"
#include "trireme/topology/local_ports.h"

#include "support/fabric_samples.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

using Names = std::vector<std::string>;
using testing::cables;
using testing::kDump;
using testing::message_of;

TEST(NodeList, IsExpandedAsSlurmWritesIt) {
  EXPECT_EQ(expand_node_list("n[1-3,07],login", 10), (Names{"n1", "n2", "n3", "n07", "login"}));
  EXPECT_EQ(expand_node_list("r[1-2]n[08-10]x", 10),
            (Names{"r1n08x", "r1n09x", "r1n10x", "r2n08x", "r2n09x", "r2n10x"}));
  EXPECT_EQ(expand_node_list("", 10), Names{});
  EXPECT_EQ(node_list(expand_node_list("n[08-10],n12", 10)), "n[08-10,12]");
  for (const char* list : {"n[1-2", "n]1[", "n[]", "n[2-1]", "n[a]", "n[1,]", ",n", "n[-3]",
                           "n[1-99999999999999999999]"}) {
    EXPECT_EQ(message_of([&] { expand_node_list(list, 10); }).find("the list of nodes '"), 0u)
        << list;
  }
  // However large a list says it is, it is refused before it is made.
  EXPECT_EQ(message_of([] { expand_node_list("n[1-999999999999]", 1000); }),
            "the list of nodes 'n[1-999999999999]': more than 1000 names");
  EXPECT_EQ(message_of([] { expand_node_list("n[1-999][1-999][1-999]", 100000); }),
            "the list of nodes 'n[1-999][1-999][1-999]': more than 100000 names");
  const std::string name(129, 'n');
  for (const std::string& list : {name + "[1-1000]", "x[1-1000]" + name}) {
    EXPECT_NE(message_of([&] { expand_node_list(list, 10000); }).find("': a name of more than 128"),
              std::string::npos);
  }
}

TEST(SlurmTopology, ATreeAsTheFileAndTheControllerTellIt) {
  const std::set<std::string> expected{"leaf1 - n1", "leaf1 - n2",     "leaf2 - n3",
                                       "leaf2 - n4", "spine1 - leaf1", "spine1 - leaf2"};
  const Fabric file = read_slurm_topology(
      "# the machine\nSwitchName=leaf1 Nodes=n[1-2]\nswitchname=leaf2 nodes=n3,n4 \\\n  "
      "LinkSpeed=7\n"
      "SwitchName=spine1 Switches=leaf[1-2] # two\n",
      "topology.conf");
  EXPECT_EQ(cables(file), expected);
  EXPECT_EQ(file.remarks(), Names{});
  EXPECT_EQ(file.vertices()[static_cast<std::size_t>(*file.host("n3"))].level, 0);
  const Fabric controller = read_slurm_topology(
      "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes=n[1-2] \nSwitchName=leaf2 Level=0 LinkSpeed=1 "
      "Nodes=n[3-4] \nSwitchName=spine1 Level=1 LinkSpeed=1 Nodes=n[1-4] Switches=leaf[1-2] \n",
      "scontrol");
  EXPECT_EQ(cables(controller), expected);
  int highest = 0;
  for (const FabricVertex& vertex : controller.vertices())
    highest = std::max(highest, vertex.level);
  EXPECT_EQ(highest, 2);
}

TEST(SlurmTopology, Blocks) {
  const Fabric fabric = read_slurm_topology(
      "BlockName=b1 Nodes=n[1-2]\nBlockName=b2 Nodes=n3\nBlockSizes=2\n", "topology.conf");
  EXPECT_EQ(cables(fabric), (std::set<std::string>{"b1 - n1", "b1 - n2", "b2 - n3",
                                                   "all blocks - b1", "all blocks - b2"}));
}

TEST(SlurmTopology, WhatIsOddIsLeftOutAndSaid) {
  const Fabric fabric = read_slurm_topology(
      "SwitchName=a Nodes=n1\nSwitchName=a Nodes=n2\nSwitchName=b Nodes=n1,n3\n"
      "SwitchName=c Switches=a,b,c\n",
      "t");
  EXPECT_EQ(fabric.remarks(), (Names{"t, line 2: switch 'a' is described a second time",
                                     "t, line 3: node 'n1' is below a second switch",
                                     "t, line 4: switch 'c' is below itself"}));
  EXPECT_EQ(cables(fabric), (std::set<std::string>{"a - n1", "b - n3", "c - a", "c - b"}));
  EXPECT_EQ(message_of([] { read_slurm_topology("No topology\n", "t"); }),
            "t: no line describes a switch (SwitchName=...) or a block (BlockName=...) of Slurm's "
            "topology");
  EXPECT_EQ(message_of([] { read_slurm_topology("\nSwitchName=a Nodes=n[1-\n", "t"); }),
            "t, line 2: the list of nodes 'n[1-': a [ without its ]");
}

TEST(SlurmAddresses, TellTheWaysUp) {
  const Fabric fabric = fabric_of_addresses({{"spine[1-2].leaf1.n1", "switch.switch.node"},
                                             {"spine[1-2].leaf2.n3", "switch.switch.node"},
                                             {"n4", "node"},
                                             {"leaf.1.n5", "switch.node"}});
  EXPECT_EQ(cables(fabric),
            (std::set<std::string>{"leaf1 - n1", "leaf2 - n3", "spine1 - leaf1", "spine2 - leaf1",
                                   "spine1 - leaf2", "spine2 - leaf2"}));
  EXPECT_TRUE(fabric.host("n4"));
  EXPECT_EQ(fabric.remarks(),
            (Names{"the address 'leaf.1.n5' does not fit its pattern 'switch.node'"}));
  // A dot in brackets separates nothing: the pattern fits, and the list of names is wrong.
  EXPECT_EQ(message_of([] {
              fabric_of_addresses({{"leaf[1.2].n1", "switch.node"}});
            }),
            "the list of nodes 'leaf[1.2]': '1.2' is no number");
}

TEST(Ibnetdiscover, CablesRatesAndHostsOfSeveralAdapters) {
  const Fabric fabric = read_ibnetdiscover(kDump, "dump");
  EXPECT_EQ(fabric.remarks(), Names{});
  EXPECT_EQ(fabric.vertices().size(), 5u);
  EXPECT_EQ(fabric.cables().size(), 6u);  // two between leaf and spine
  EXPECT_EQ(
      cables(fabric),
      (std::set<std::string>{"leaf1 (000000000000aa01) - host1", "leaf1 (000000000000aa02) - host2",
                             "spine1 (000000000000aa03) - leaf1 (000000000000aa01)",
                             "spine1 (000000000000aa03) - leaf1 (000000000000aa02)"}));
  double host2 = 0.0;
  for (const Cable& cable : fabric.cables()) {
    if (cable.a == *fabric.host("host2") || cable.b == *fabric.host("host2")) {
      host2 += cable.bytes_per_second;
    }
  }
  EXPECT_DOUBLE_EQ(host2, 25e9 + 3.125e9);
}

// A fat tree of three levels with 10,080 hosts: leaf switches have 36 of them and 18 cables up.
std::string large_dump() {
  constexpr int kHosts = 36, kLeaves = 280, kUp = 18, kPod = 14, kPods = kLeaves / kPod;
  const auto leaf = [](int i) { return fmt::format("S-{:016x}", 0xaa0000 + i); };
  const auto middle = [](int pod, int i) {
    return fmt::format("S-{:016x}", 0xbb0000 + pod * kUp + i);
  };
  const auto core = [](int i) { return fmt::format("S-{:016x}", 0xdd0000 + i); };
  const auto host = [](int i) { return fmt::format("H-{:016x}", 0xcc000000 + 16 * i); };
  std::string text;
  const auto add_switch = [&](const std::string& id) {
    text +=
        fmt::format("Switch\t64 \"{}\"\t\t# \"{}\" base port 0 lid 2 lmc 0\n", id, id.substr(12));
  };
  const auto add_port = [&](int port, const std::string& peer, int there) {
    text += fmt::format("[{}]\t\"{}\"[{}]\t\t# \"some switch\" lid 4 4xHDR\n", port, peer, there);
  };
  for (int l = 0; l < kLeaves; ++l) {
    add_switch(leaf(l));
    for (int h = 0; h < kHosts; ++h) {
      text += fmt::format("[{}]\t\"{}\"[1](cc) \t\t# \"node{} mlx5_0\" lid 1 4xHDR\n", h + 1,
                          host(l * kHosts + h), l * kHosts + h);
    }
    for (int u = 0; u < kUp; ++u) add_port(kHosts + 1 + u, middle(l / kPod, u), l % kPod + 1);
  }
  for (int pod = 0; pod < kPods; ++pod) {
    for (int m = 0; m < kUp; ++m) {
      add_switch(middle(pod, m));
      for (int l = 0; l < kPod; ++l) add_port(l + 1, leaf(pod * kPod + l), kHosts + 1 + m);
      add_port(kPod + 1, core(m), pod + 1);
    }
  }
  for (int c = 0; c < kUp; ++c) {
    add_switch(core(c));
    for (int pod = 0; pod < kPods; ++pod) add_port(pod + 1, middle(pod, c), kPod + 1);
  }
  for (int h = 0; h < kLeaves * kHosts; ++h) {
    text += fmt::format(
        "Ca\t1 \"{}\"\t\t# \"node{} mlx5_0\"\n[1]({:x}) \t\"{}\"[{}]\t\t# lid 1 lmc 0 \"leaf\" lid "
        "2 "
        "4xHDR\n",
        host(h), h, 0xcc000001 + 16 * h, leaf(h / kHosts), h % kHosts + 1);
  }
  return text;
}

TEST(Ibnetdiscover, TenThousandHosts) {
  const std::string text = large_dump();
  const std::clock_t begin = std::clock();
  const Fabric fabric =
      merge_fabrics(read_slurm_topology("SwitchName=all Nodes=node[0-10079]\n", "t"),
                    read_ibnetdiscover(text, "dump"));
  const std::vector<FabricLevel> levels = levels_of(fabric);
  const double seconds = static_cast<double>(std::clock() - begin) / CLOCKS_PER_SEC;
  const double mebibytes = peak_resident_bytes() / (1 << 20);
  fmt::print("{} MB of text, {} hosts, {} cables: {:.2f} s of a processor, {:.0f} MiB at most\n",
             text.size() / 1000000, levels[0].vertices, fabric.cables().size(), seconds, mebibytes);
  EXPECT_EQ(fabric.remarks(), Names{});
  ASSERT_EQ(levels.size(), 4u);
  EXPECT_EQ(levels[0].vertices, 10080);
  EXPECT_EQ(levels[1].cables_up, 280 * 18);
  EXPECT_EQ(levels[2].cables_up, 20 * 18);
  EXPECT_DOUBLE_EQ(levels[1].taper, 2.0);
  EXPECT_DOUBLE_EQ(levels[2].taper, 14.0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(mebibytes, 200.0);
  EXPECT_LT(seconds, 2.0);  // far above what it takes, far below what a square of the hosts would
#endif
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

// A router and the aggregation node of a switch, as both ends of their cables tell them.
TEST(Ibnetdiscover, RoutersAndAggregationNodesAreNoHosts) {
  std::string text =
      replaced(kDump, "[3]\t\"S-000000000000aa03\"[3]",
               "[4]\t\"H-000000000000ee00\"[1](ee01) \t\t# \"Mellanox Technologies "
               "Aggregation Node\" lid 9 4xHDR\n"
               "[5]\t\"R-000000000000ff00\"[1](ff01) \t\t# \"router1\" lid 10 4xHDR\n"
               "[3]\t\"S-000000000000aa03\"[3]");
  // The router follows an adapter, whose ports its own are not.
  text +=
      "\nrtguid=0xff00\n"
      "Rt\t2 \"R-000000000000ff00\"\t\t# \"router1\"\n"
      "[1](ff01) \t\"S-000000000000aa01\"[5]\t\t# lid 10 lmc 0 \"leaf1\" lid 2 4xHDR\n"
      "[2](ff02) \t\"S-000000000000aa03\"[9]\t\t# lid 11 lmc 0 \"spine1\" lid 3 4xHDR\n"
      "\ncaguid=0xee00\n"
      "Ca\t1 \"H-000000000000ee00\"\t\t# \"Mellanox Technologies Aggregation Node\"\n"
      "[1](ee01) \t\"S-000000000000aa01\"[4]\t\t# lid 9 lmc 0 \"leaf1\" lid 2 4xHDR\n";
  const Fabric fabric = read_ibnetdiscover(text, "dump"), plain = read_ibnetdiscover(kDump, "dump");
  EXPECT_EQ(fabric.remarks(), Names{});
  EXPECT_EQ(fabric.vertices().size(), plain.vertices().size());
  EXPECT_EQ(fabric.cables().size(), plain.cables().size());
  EXPECT_EQ(cables(fabric), cables(plain));
  EXPECT_EQ(levels_of(fabric)[0].vertices, 2);
}

TEST(Ibnetdiscover, WhatIsOddIsLeftOutAndSaid) {
  const auto remarks = [](const std::string& what, const std::string& by) {
    return read_ibnetdiscover(replaced(kDump, what, by), "dump").remarks();
  };
  // bad input: `topo`: a dump with a rate that is unknown, ends of a cable that differ, a
  // GUID that is described twice, two ports of one GUID, a port that leads elsewhere, or a port
  // without a peer | FILE, line 6: a rate that is unknown; ...: the GUID 000000000000bb00 is
  // described a second time; ...: port 1 of ... has the GUID ..., which is that of port 1 of ...;
  // ... | 0
  EXPECT_EQ(remarks("lid 1 4xHDR", "lid 1 4xZDR"), (Names{"dump, line 6: a rate that is unknown"}));
  EXPECT_EQ(
      remarks("lid 1 4xHDR", "lid 1 2xHDR"),
      (Names{"dump, line 24: the ends of a cable have different rates; the lower one counts"}));

  EXPECT_EQ(remarks("Ca	1 \"H-000000000000cc00\"", "Ca	1 \"H-000000000000bb00\""),
            (Names{"dump, line 27: the GUID 000000000000bb00 is described a second time"}));
  EXPECT_EQ(remarks("\n[1](cc01)", "\n[1](bb01)"),
            (Names{"dump, line 28: port 1 of 000000000000cc00 has the GUID 000000000000bb01, which "
                   "is that of port 1 of 000000000000bb00"}));
  // A port that is told twice has one GUID, its own.
  const std::string port = "[1](cc01) \t\"S-000000000000aa02\"[1]\t\t# lid 5 lmc 0 \"leaf1\"";
  EXPECT_EQ(remarks(port, port + " lid 4 4xHDR\n" + port),
            (Names{"dump, line 29: port 1 of 000000000000cc00 has a second cable"}));
  EXPECT_EQ(
      remarks("[3]	\"S-000000000000aa03\"[3]", "[3]	\"S-000000000000aa03\"[1]"),
      (Names{"dump, line 8: port 3 of 000000000000aa01 leads to a port that leads elsewhere",
             "dump, line 20: port 3 of 000000000000aa03 leads to a port that leads elsewhere"}));
  EXPECT_EQ(remarks("\"host1 mlx5_0\"\n", "\"\"\n"),
            (Names{"dump, line 23: the adapter 000000000000bb00 names no host"}));
  EXPECT_EQ(remarks("[1]	\"H-", "[1	\"H-"),
            (Names{"dump, line 6: a port without a peer"}));
  EXPECT_EQ(remarks("\"host1 mlx5_0\"\n", "\"" + std::string(300, 'h') + " mlx5_0\"\n"),
            (Names{"dump, line 23: a description of 307 characters, more than 256"}));
  EXPECT_EQ(message_of([] { read_ibnetdiscover("hello\n", "dump"); }),
            "dump: no line describes a switch (Switch ...) or an adapter (Ca ...), as a dump of "
            "ibnetdiscover has");
}

const std::string kYaml = R"(---
- topology: all
  cluster_default: false
  flat: true
- topology: tree
  cluster_default: true
  tree:
    switches:
      - switch: spine
        children: leaf[1-2]
      - switch: leaf1
        nodes: n[1-2]
      - switch: leaf2
        nodes: n[3-4]
- topology: racks
  block:
    block_sizes: [2]
    blocks:
      - block: b1
        nodes: n[1-2]
)";

TEST(SlurmYaml, NamedTopologies) {
  EXPECT_TRUE(is_slurm_yaml(kYaml));
  EXPECT_FALSE(is_slurm_yaml("# a tree\nSwitchName=leaf1 Nodes=n1\n"));
  const Fabric tree = read_slurm(kYaml, "topology.yaml", "");
  EXPECT_EQ(cables(tree), (std::set<std::string>{"leaf1 - n1", "leaf1 - n2", "leaf2 - n3",
                                                 "leaf2 - n4", "spine - leaf1", "spine - leaf2"}));
  EXPECT_EQ(cables(read_slurm(kYaml, "topology.yaml", "racks")),
            (std::set<std::string>{"b1 - n1", "b1 - n2", "all blocks - b1"}));
  EXPECT_TRUE(read_slurm(kYaml, "topology.yaml", "all").vertices().empty());
}

TEST(SlurmYaml, WhatIsOddIsSaid) {
  const auto read = [](const std::string& text, const std::string& topology = "") {
    return read_slurm_yaml(text, "t.yaml", topology);
  };
  // bad input: `topo`: a topology.yaml without the topology that is asked for | t.yaml: no topology
  // is called 'rack'; there are all, tree, racks | 2
  EXPECT_EQ(message_of([&] { read(kYaml, "rack"); }),
            "t.yaml: no topology is called 'rack'; there are all, tree, racks");
  // bad input: `topo`: a topology.yaml that is no YAML, or no list of topologies | t.yaml, line 2:
  // no YAML: ...; t.yaml: no list of topologies (- topology: NAME), as a topology.yaml of Slurm has
  // | 2
  EXPECT_EQ(message_of([&] { read("- topology: [\n"); }).find("t.yaml, line 2: no YAML: "), 0u);
  EXPECT_EQ(message_of([&] { read("- a\n- b\n"); }),
            "t.yaml: no list of topologies (- topology: NAME), as a topology.yaml of Slurm has");
  EXPECT_EQ(message_of([&] { read("- topology: a\n"); }),
            "t.yaml, line 1: a topology is a tree, a block or flat");
  EXPECT_EQ(message_of([&] { read(std::string(100000, '[')); }).find("t.yaml, line 1: no YAML: "),
            0u);
  // bad input: `topo`: a topology.yaml of more than 4 MiB | t.yaml: 4194305 bytes of YAML, and at
  // most 4194304 are read; topology.conf may be longer | 2
  EXPECT_EQ(message_of([&] { read(std::string((4 << 20) + 1, '-')); }),
            "t.yaml: 4194305 bytes of YAML, and at most 4194304 are read; topology.conf may be "
            "longer");
  EXPECT_EQ(read("- topology: a\n  tree: {switches: [x, {switch: s, nodes: [n1]}]}\n").remarks(),
            (Names{"t.yaml, line 2: expected a map in the list of switches",
                   "t.yaml, line 2: expected names as the value of nodes"}));
}

TEST(SlurmTopology, LoopsAreLeftOut) {
  // bad input: `topo`: in Slurm's topology a switch is below itself | FILE, line 3: switch
  // 'c' is below itself, by way of 'a' | 0
  const Fabric fabric = read_slurm_topology(
      "SwitchName=a Switches=b,d\nSwitchName=b Switches=c\nSwitchName=c Switches=a\n"
      "SwitchName=d Nodes=n1\n",
      "t");
  EXPECT_EQ(fabric.remarks(), (Names{"t, line 3: switch 'c' is below itself, by way of 'a'"}));
  EXPECT_EQ(fabric.cables().size(), 4u);
}

TEST(LocalPorts, AsSysfsHasThem) {
  const testing::TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    const auto path = folder.path() / "class" / "infiniband" / name;
    std::filesystem::create_directories(path.parent_path());
    std::ofstream(path) << text;
  };
  write("mlx5_0/node_guid", "b859:9f03:00a1:b2c4\n");
  write("mlx5_0/device/numa_node", "1\n");
  write("mlx5_0/device/local_cpus", "ffff0000\n");
  write("mlx5_0/ports/1/rate", "40 Gb/sec (4X QDR)\n");
  write("mlx5_0/ports/1/state", "4: ACTIVE\n");
  write("mlx5_0/ports/1/phys_state", "5: LinkUp\n");
  write("mlx5_0/ports/1/lid", "0x12\n");
  write("mlx5_0/ports/1/sm_lid", "0x1\n");
  write("mlx5_0/ports/1/link_layer", "InfiniBand\n");
  write("mlx5_0/ports/1/gids/0", "fe80:0000:0000:0000:b859:9f03:00a1:b2c4\n");
  write("mlx5_1/ports/1/rate", std::string(100000, 'x'));
  const std::vector<LocalPort> ports = read_local_ports(folder.path().string());
  ASSERT_EQ(ports.size(), 2u);
  EXPECT_EQ(ports[0].adapter, "mlx5_0");
  EXPECT_EQ(ports[0].guid, 0xb8599f0300a1b2c4u);
  EXPECT_EQ(ports[0].state, "ACTIVE");
  EXPECT_EQ(ports[0].physical_state, "LinkUp");
  EXPECT_EQ(ports[0].lid, 0x12);
  EXPECT_EQ(ports[0].manager_lid, 1);
  EXPECT_EQ(ports[0].subnet, "fe80:0000:0000:0000");
  EXPECT_EQ(ports[0].numa_node, 1);
  EXPECT_EQ(ports[0].cpus, "ffff0000");
  EXPECT_DOUBLE_EQ(ports[0].bytes_per_second, 4e9);  // less the line code
  EXPECT_EQ(ports[1].bytes_per_second, 0.0);
  EXPECT_EQ(ports[1].numa_node, -1);
  EXPECT_DOUBLE_EQ(bytes_per_second_of_port("400 Gb/sec (4X NDR)"), 50e9);
  EXPECT_DOUBLE_EQ(bytes_per_second_of_port("800 Gb/sec (4X ZDR)"), 100e9);
  EXPECT_EQ(bytes_per_second_of_port("1e99 Gb/sec"), 0.0);
  EXPECT_TRUE(read_local_ports("/nowhere").empty());
}

}  // namespace
}  // namespace trireme
