// Readers of a cluster's descriptions.
#include "trireme/topology/fabric.h"

#include <algorithm>
#include <chrono>
#include <filesystem>
#include <fstream>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/node_names.h"
#include "trireme/base/resident_memory.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/fabric_json.h"
#include "trireme/topology/fabric_summary.h"
#include "trireme/topology/network.h"

#include "support/temporary_folder.h"

namespace trireme {
namespace {

using Names = std::vector<std::string>;

// "leaf1 - n1", sorted.
std::set<std::string> cables(const Fabric& fabric) {
  std::set<std::string> texts;
  const auto& vertices = fabric.vertices();
  for (const Cable& cable : fabric.cables()) {
    const FabricVertex* ends[] = {&vertices[static_cast<std::size_t>(cable.a)],
                                  &vertices[static_cast<std::size_t>(cable.b)]};
    if (ends[0]->level < ends[1]->level) std::swap(ends[0], ends[1]);
    texts.insert(fmt::format("{} - {}", ends[0]->name, ends[1]->name));
  }
  return texts;
}

template <class Read>
std::string refusal(const Read& read) {
  try {
    read();
  } catch (const ConfigError& error) {
    return error.what();
  }
  return "accepted";
}

TEST(NodeList, IsExpandedAsSlurmWritesIt) {
  EXPECT_EQ(expand_node_list("n[1-3,07],login", 10), (Names{"n1", "n2", "n3", "n07", "login"}));
  EXPECT_EQ(expand_node_list("r[1-2]n[08-10]x", 10),
            (Names{"r1n08x", "r1n09x", "r1n10x", "r2n08x", "r2n09x", "r2n10x"}));
  EXPECT_EQ(expand_node_list("", 10), Names{});
  EXPECT_EQ(node_list(expand_node_list("n[08-10],n12", 10)), "n[08-10,12]");
  for (const char* list : {"n[1-2", "n]1[", "n[]", "n[2-1]", "n[a]", "n[1,]", ",n", "n[-3]",
                           "n[1-99999999999999999999]"}) {
    EXPECT_EQ(refusal([&] { expand_node_list(list, 10); }).find("the list of nodes '"), 0u) << list;
  }
  // However large a list says it is, it is refused before it is made.
  EXPECT_EQ(refusal([] { expand_node_list("n[1-999999999999]", 1000); }),
            "the list of nodes 'n[1-999999999999]': more than 1000 names");
  EXPECT_EQ(refusal([] { expand_node_list("n[1-999][1-999][1-999]", 100000); }),
            "the list of nodes 'n[1-999][1-999][1-999]': more than 100000 names");
  const std::string name(129, 'n');
  for (const std::string& list : {name + "[1-1000]", "x[1-1000]" + name}) {
    EXPECT_NE(refusal([&] { expand_node_list(list, 10000); }).find("': a name of more than 128"),
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
  EXPECT_EQ(refusal([] { read_slurm_topology("No topology\n", "t"); }),
            "t: no line describes a switch (SwitchName=...) or a block (BlockName=...) of Slurm's "
            "topology");
  EXPECT_EQ(refusal([] { read_slurm_topology("\nSwitchName=a Nodes=n[1-\n", "t"); }),
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
}

// Two leaves, two hosts, of which one has two adapters; both leaves hang on a spine.
const std::string kDump = R"(#
# Topology file: generated
vendid=0x0
switchguid=0xaa01(aa01)
Switch	4 "S-000000000000aa01"		# "leaf1" base port 0 lid 2 lmc 0
[1]	"H-000000000000bb00"[1](bb01) 		# "host1 mlx5_0" lid 1 4xHDR
[2]	"S-000000000000aa03"[1]		# "spine1" lid 3 4xNDR
[3]	"S-000000000000aa03"[3]		# "spine1" lid 3 4xNDR

switchguid=0xaa02(aa02)
Switch	4 "S-000000000000aa02"		# "leaf1" base port 0 lid 4 lmc 0
[1]	"H-000000000000cc00"[1](cc01) 		# "host2 mlx5_0" lid 5 4xHDR
[2]	"S-000000000000aa03"[2]		# "spine1" lid 3 4xNDR
[4]	"H-000000000000dd00"[1](dd01) 		# "host2 mlx5_1" lid 6 1xEDR

switchguid=0xaa03(aa03)
Switch	4 "S-000000000000aa03"		# "spine1" base port 0 lid 3 lmc 0
[1]	"S-000000000000aa01"[2]		# "leaf1" lid 2 4xNDR
[2]	"S-000000000000aa02"[2]		# "leaf1" lid 4 4xNDR
[3]	"S-000000000000aa01"[3]		# "leaf1" lid 2 4xNDR

caguid=0xbb00
Ca	1 "H-000000000000bb00"		# "host1 mlx5_0"
[1](bb01) 	"S-000000000000aa01"[1]		# lid 1 lmc 0 "leaf1" lid 2 4xHDR

caguid=0xcc00
Ca	1 "H-000000000000cc00"		# "host2 mlx5_0"
[1](cc01) 	"S-000000000000aa02"[1]		# lid 5 lmc 0 "leaf1" lid 4 4xHDR

caguid=0xdd00
Ca	1 "H-000000000000dd00"		# "host2 mlx5_1"
[1](dd01) 	"S-000000000000aa02"[4]		# lid 6 lmc 0 "leaf1" lid 4 1xEDR
)";

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
        "Ca\t1 \"{}\"\t\t# \"node{} mlx5_0\"\n[1](cc) \t\"{}\"[{}]\t\t# lid 1 lmc 0 \"leaf\" lid 2 "
        "4xHDR\n",
        host(h), h, leaf(h / kHosts), h % kHosts + 1);
  }
  return text;
}

TEST(Ibnetdiscover, TenThousandHosts) {
  const std::string text = large_dump();
  const auto begin = std::chrono::steady_clock::now();
  const Fabric fabric =
      merge_fabrics(read_slurm_topology("SwitchName=all Nodes=node[0-10079]\n", "t"),
                    read_ibnetdiscover(text, "dump"));
  const std::vector<FabricLevel> levels = levels_of(fabric);
  const std::chrono::duration<double> seconds = std::chrono::steady_clock::now() - begin;
  const double mebibytes = peak_resident_bytes() / (1 << 20);
  fmt::print("{} MB of text, {} hosts, {} cables: {:.2f} s, {:.0f} MiB at most\n",
             text.size() / 1000000, levels[0].vertices, fabric.cables().size(), seconds.count(),
             mebibytes);
  EXPECT_EQ(fabric.remarks(), Names{});
  ASSERT_EQ(levels.size(), 4u);
  EXPECT_EQ(levels[0].vertices, 10080);
  EXPECT_EQ(levels[1].cables_up, 280 * 18);
  EXPECT_EQ(levels[2].cables_up, 20 * 18);
  EXPECT_DOUBLE_EQ(levels[1].taper, 2.0);
  EXPECT_DOUBLE_EQ(levels[2].taper, 14.0);
#if !defined(__SANITIZE_ADDRESS__) && !defined(__SANITIZE_THREAD__)
  EXPECT_LT(mebibytes, 200.0);
#endif
}

std::string replaced(std::string text, const std::string& what, const std::string& by) {
  const std::size_t at = text.find(what);
  EXPECT_NE(at, std::string::npos) << what;
  return text.replace(at, what.size(), by);
}

TEST(Ibnetdiscover, WhatIsOddIsLeftOutAndSaid) {
  const auto remarks = [](const std::string& what, const std::string& by) {
    return read_ibnetdiscover(replaced(kDump, what, by), "dump").remarks();
  };
  EXPECT_EQ(remarks("lid 1 4xHDR", "lid 1 4xZDR"), (Names{"dump, line 6: a rate that is unknown"}));
  EXPECT_EQ(
      remarks("lid 1 4xHDR", "lid 1 2xHDR"),
      (Names{"dump, line 24: the ends of a cable have different rates; the lower one counts"}));

  EXPECT_EQ(remarks("Ca	1 \"H-000000000000cc00\"", "Ca	1 \"H-000000000000bb00\""),
            (Names{"dump, line 27: the GUID 000000000000bb00 is described a second time"}));
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
  EXPECT_EQ(refusal([] { read_ibnetdiscover("hello\n", "dump"); }),
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
  EXPECT_EQ(refusal([&] { read(kYaml, "rack"); }),
            "t.yaml: no topology is called 'rack'; there are all, tree, racks");
  // bad input: `topo`: a topology.yaml that is no YAML, or no list of topologies | t.yaml, line 2:
  // no YAML: ...; t.yaml: no list of topologies (- topology: NAME), as a topology.yaml of Slurm has
  // | 2
  EXPECT_EQ(refusal([&] { read("- topology: [\n"); }).find("t.yaml, line 2: no YAML: "), 0u);
  EXPECT_EQ(refusal([&] { read("- a\n- b\n"); }),
            "t.yaml: no list of topologies (- topology: NAME), as a topology.yaml of Slurm has");
  EXPECT_EQ(refusal([&] { read("- topology: a\n"); }),
            "t.yaml, line 1: a topology is a tree, a block or flat");
  EXPECT_EQ(refusal([&] { read(std::string(100000, '[')); }).find("t.yaml, line 1: no YAML: "), 0u);
  // bad input: `topo`: a topology.yaml of more than 4 MiB | t.yaml: 4194305 bytes of YAML, and at
  // most 4194304 are read; topology.conf may be longer | 2
  EXPECT_EQ(refusal([&] { read(std::string((4 << 20) + 1, '-')); }),
            "t.yaml: 4194305 bytes of YAML, and at most 4194304 are read; topology.conf may be "
            "longer");
  EXPECT_EQ(read("- topology: a\n  tree: {switches: [x, {switch: s, nodes: [n1]}]}\n").remarks(),
            (Names{"t.yaml, line 2: expected a map in the list of switches",
                   "t.yaml, line 2: expected names as the value of nodes"}));
}

TEST(SlurmTopology, LoopsAreLeftOut) {
  const Fabric fabric = read_slurm_topology(
      "SwitchName=a Switches=b,d\nSwitchName=b Switches=c\nSwitchName=c Switches=a\n"
      "SwitchName=d Nodes=n1\n",
      "t");
  EXPECT_EQ(fabric.remarks(), (Names{"t, line 3: switch 'c' is below itself, by way of 'a'"}));
  EXPECT_EQ(fabric.cables().size(), 4u);
}

const std::string kSlurm =
    "SwitchName=l1 Nodes=host[1,3]\nSwitchName=l2 Nodes=host2\nSwitchName=top Switches=l[1-2]\n";

Fabric merged(const std::string& slurm, const std::string& dump) {
  return merge_fabrics(read_slurm_topology(slurm, "t"), read_ibnetdiscover(dump, "dump"));
}

const Cable& cable_of(const Fabric& fabric, const std::string& host) {
  for (const Cable& cable : fabric.cables()) {
    if (cable.a == fabric.host(host) || cable.b == fabric.host(host)) return cable;
  }
  throw std::runtime_error(host + " has no cable");
}

TEST(Merge, FactsSayWhereTheyAreFrom) {
  const Fabric fabric = merged(kSlurm, kDump);
  EXPECT_EQ(
      cables(fabric),
      (std::set<std::string>{"leaf1 (000000000000aa01) - host1", "leaf1 (000000000000aa01) - host3",
                             "leaf1 (000000000000aa02) - host2",
                             "spine1 (000000000000aa03) - leaf1 (000000000000aa01)",
                             "spine1 (000000000000aa03) - leaf1 (000000000000aa02)"}));
  // bad input: a dump of ibnetdiscover without some of Slurm's hosts | remark: a host of Slurm is
  // not in ibnetdiscover: host3 | 0
  EXPECT_EQ(fabric.remarks(), (Names{"a host of Slurm is not in ibnetdiscover: host3"}));
  EXPECT_EQ(cable_of(fabric, "host1").from, FabricSource::kSlurm);
  EXPECT_EQ(cable_of(fabric, "host1").rate_from, FabricSource::kDump);
  EXPECT_EQ(cable_of(fabric, "host1").adapter, "mlx5_0");
  EXPECT_EQ(cable_of(fabric, "host3").bytes_per_second, 0.0);
  EXPECT_EQ(fabric.vertices()[static_cast<std::size_t>(*fabric.host("host2"))].from,
            FabricSource::kSlurm);
  // A message takes the same links as without Slurm's file.
  const TreeNetwork network(fabric, {*fabric.host("host1"), *fabric.host("host2")}, {});
  std::vector<int> links;
  network.route(0, 1, links);
  ASSERT_EQ(links.size(), 4u);
  EXPECT_DOUBLE_EQ(network.links()[static_cast<std::size_t>(links[1])].bytes_per_second, 100e9);
}

TEST(Merge, WhereTwoDisagreeBothAreNamed) {
  std::string dump = kDump;
  for (const int more : {3, 4}) {  // more hosts on the first leaf
    dump += fmt::format(
        "caguid=0xee0{0}\nCa\t1 \"H-000000000000ee0{0}\"\t\t# \"host{0} mlx5_0\"\n[1](ee1{0}) "
        "\t\"S-000000000000aa01\"[{1}]\t\t# lid 7{0} lmc 0 \"leaf1\" lid 2 4xHDR\n",
        more, more + 2);
  }
  // bad input: Slurm and a dump of ibnetdiscover put a host below different leaf switches | remark:
  // host 'host4': Slurm puts it below 'l2', ibnetdiscover below 'leaf1 (000000000000aa01)'; Slurm
  // counts | 0
  const Fabric fabric =
      merged("SwitchName=l1 Nodes=host[1,3]\nSwitchName=l2 Nodes=host[2,4].cluster\n", dump);
  EXPECT_EQ(fabric.remarks(),
            (Names{"host 'host4.cluster': Slurm puts it below 'l2', ibnetdiscover "
                   "below 'leaf1 (000000000000aa01)'; Slurm counts"}));
  EXPECT_TRUE(cables(fabric).contains("leaf1 (000000000000aa02) - host4.cluster"));
  EXPECT_DOUBLE_EQ(cable_of(fabric, "host4.cluster").bytes_per_second, 25e9);
  // A leaf switch that only Slurm knows is below the switches above the others.
  const Fabric split = merged(
      "SwitchName=l1 Nodes=host[1,3]\nSwitchName=l2 Nodes=host2\nSwitchName=l3 Nodes=host4\n",
      dump);
  EXPECT_TRUE(cables(split).contains("l3 - host4"));
  EXPECT_TRUE(cables(split).contains("spine1 (000000000000aa03) - l3"));
  EXPECT_EQ(merged(kSlurm + "SwitchName=root Switches=top\n", kDump).remarks().back(),
            "Slurm tells of 3 levels of switches, ibnetdiscover of 2; the cables are those of "
            "ibnetdiscover");
}

TEST(Merge, AnotherClustersDumpIsLeftOut) {
  // bad input: a dump of ibnetdiscover of another cluster | remark: ibnetdiscover describes none of
  // the hosts of Slurm, such as 'x1': it is of another cluster and is left out | 0
  const Fabric other = merged("SwitchName=a Nodes=x[1-2]\n", kDump);
  EXPECT_EQ(other.remarks(), (Names{"ibnetdiscover describes none of the hosts of Slurm, such as "
                                    "'x1': it is of another cluster and is left out"}));
  EXPECT_EQ(cables(other), (std::set<std::string>{"a - x1", "a - x2"}));
}

LocalPort port(const std::string& rate) {
  LocalPort result;
  result.adapter = "mlx5_0";
  result.number = 1;
  result.guid = 0xbb00;
  result.state = "ACTIVE";
  result.link_layer = "InfiniBand";
  result.rate = rate;
  result.bytes_per_second = bytes_per_second_of_port(rate);
  result.subnet = "fe80:0000:0000:0000";
  return result;
}

TEST(Merge, PortsOfThisHost) {
  Fabric fabric = read_ibnetdiscover(kDump, "dump");
  merge_ports(fabric, "host1.cluster", {port("200 Gb/sec (4X HDR)")});
  EXPECT_EQ(fabric.remarks(), Names{});
  LocalPort down = port("10 Gb/sec (4X SDR)");
  down.state = "DOWN";
  down.physical_state = "Polling";
  // bad input: sysfs and a dump of ibnetdiscover tell different rates of a port, or one of them
  // that it is down | remark: host1 mlx5_0 port 1: ibnetdiscover says 200 Gbit/s, sysfs 100 Gbit/s;
  // ibnetdiscover counts | 0
  merge_ports(fabric, "host1", {port("100 Gb/sec (2X HDR)"), down, port("a rate")});
  EXPECT_EQ(
      fabric.remarks(),
      (Names{"host1 mlx5_0 port 1: ibnetdiscover says 200 Gbit/s, sysfs 100 Gbit/s; "
             "ibnetdiscover counts",
             "host1 mlx5_0 port 1: ibnetdiscover has a cable there, in sysfs it is DOWN (Polling)",
             "host1 mlx5_0 port 1: the rate 'a rate' is unknown"}));
  merge_ports(fabric, "login", {port("200 Gb/sec (4X HDR)")});
  EXPECT_EQ(fabric.remarks().back(),
            "this host, 'login', is not in the fabric; the ports that sysfs has are left out");
  // Slurm knows no rates: they are the ports'.
  Fabric slurm = read_slurm_topology(kSlurm, "t");
  merge_ports(slurm, "host1", {port("200 Gb/sec (4X HDR)"), port("200 Gb/sec (4X HDR)")});
  EXPECT_DOUBLE_EQ(cable_of(slurm, "host1").bytes_per_second, 50e9);
  EXPECT_EQ(cable_of(slurm, "host1").rate_from, FabricSource::kSysfs);
  Fabric alone(FabricSource::kSysfs);
  merge_ports(alone, "host1", {port("200 Gb/sec (4X HDR)")});
  EXPECT_EQ(cables(alone), (std::set<std::string>{"subnet fe80:0000:0000:0000 - host1"}));
}

TEST(Merge, MeasuredRatesAreTheLast) {
  Fabric slurm = read_slurm_topology(kSlurm, "t");
  NetworkRates rates;
  rates.distances = {{}, {1e-6, 9e9, 10e9, 0.0}, {2e-6, 9e9, 10e9, 15e9}};
  merge_rates(slurm, rates);
  EXPECT_DOUBLE_EQ(cable_of(slurm, "host1").bytes_per_second, 10e9);
  EXPECT_EQ(cable_of(slurm, "host1").rate_from, FabricSource::kMeasured);
  EXPECT_DOUBLE_EQ(levels_of(slurm).at(1).up_bytes_per_second, 30e9);
  EXPECT_DOUBLE_EQ(levels_of(slurm).at(1).taper, 1.0);
  EXPECT_EQ(slurm.remarks(), Names{});
  Fabric dump = read_ibnetdiscover(kDump, "dump");
  merge_rates(dump, rates);
  EXPECT_EQ(
      dump.remarks(),
      (Names{"the cables of a host: ibnetdiscover says 200 Gbit/s, measurement 80 Gbit/s, for 2 "
             "of 2; ibnetdiscover counts",
             "the ways up from a switch of level 1: ibnetdiscover says 800 Gbit/s, measurement "
             "120 Gbit/s, for 2 of 2; ibnetdiscover counts"}));
}

TEST(Merge, AMeasurementAloneIsAFabric) {
  StoredRates stored;
  stored.hosts = {"n1", "n2", "n3"};
  stored.tiers = {{0, 0, 1}};
  stored.rates.distances = {{}, {1e-6, 9e9, 0.0, 0.0}, {2e-6, 9e9, 0.0, 15e9}};
  Fabric fabric = fabric_of_rates(stored);
  merge_rates(fabric, stored.rates);
  EXPECT_EQ(cables(fabric),
            (std::set<std::string>{
                "block 0 of tier 1 - n1", "block 0 of tier 1 - n2", "block 1 of tier 1 - n3",
                "block 0 of tier 2 - block 0 of tier 1", "block 0 of tier 2 - block 1 of tier 1"}));
  EXPECT_DOUBLE_EQ(cable_of(fabric, "n1").bytes_per_second, 9e9);
  EXPECT_DOUBLE_EQ(levels_of(fabric)[1].up_bytes_per_second, 30e9);
}

TEST(Merge, AssumedRatesSayThatTheyAre) {
  Fabric slurm = read_slurm_topology(kSlurm, "t");
  NetworkRates rates;
  rates.distances = {{}, {1e-6, 9e9, 10e9, 0.0}, {2e-6, 9e9, 10e9, 15e9}};
  merge_rates(slurm, rates, FabricSource::kMadeUp);
  EXPECT_DOUBLE_EQ(cable_of(slurm, "host1").bytes_per_second, 10e9);
  EXPECT_EQ(name_of(cable_of(slurm, "host1").rate_from), "assumption");
  // An assumption disagrees with nothing.
  Fabric dump = read_ibnetdiscover(kDump, "dump");
  merge_rates(dump, rates, FabricSource::kMadeUp);
  EXPECT_EQ(dump.remarks(), Names{});
}

// The hosts of a leaf need no spine, and those of two leaves no other leaf.
TEST(Summary, ThePartOfAJob) {
  const Fabric fabric = make_fat_tree({{2, 2e9}, {2, 2e9}, {2, 0.0}}, 1e9);
  const auto part = [&](const std::vector<const char*>& names) {
    std::vector<int> hosts;
    for (const char* name : names) hosts.push_back(fabric.host(name).value());
    return cables(part_of(fabric, hosts));
  };
  EXPECT_EQ(part({"host0", "host1"}),
            (std::set<std::string>{"switch1.0 - host0", "switch1.0 - host1"}));
  EXPECT_EQ(part({"host1", "host2"}),
            (std::set<std::string>{"switch1.0 - host1", "switch1.1 - host2",
                                   "switch2.0 - switch1.0", "switch2.0 - switch1.1"}));
  EXPECT_EQ(part({"host0", "host7"}).size(), 6u);
  EXPECT_EQ(part({}), std::set<std::string>{});
}

TEST(FabricJson, IsReadAsItWasWritten) {
  Fabric fabric = read_ibnetdiscover(kDump, "dump");
  merge_ports(fabric, "host1", {port("100 Gb/sec (2X HDR)")});
  // A switch that is called as a host is.
  fabric.add_cable({fabric.add_switch("top"), fabric.add_switch("host1")});
  fabric.add_cable({fabric.add_switch("host1"), fabric.add_switch("leaf0")});
  fabric.add_cable({fabric.add_switch("leaf0"), fabric.add_host("host9")});
  fabric.find_levels();
  Json json = json_of(fabric), again = json_of(fabric_from_json(Json::parse(json.dump())));
  json["remarks"] = Json();
  again["remarks"] = Json();
  EXPECT_EQ(again.dump(), json.dump());
  for (const char* text : {"{}", "[]", R"({"vertices": [], "cables": [{"ends": ["a", "b"]}]})",
                           R"({"vertices": [{"name": 1}], "cables": []})"}) {
    EXPECT_THROW(fabric_from_json(Json::parse(text)), JsonError) << text;
  }
}

TEST(Summary, LevelsTaperAndRails) {
  const std::vector<FabricLevel> levels = levels_of(read_ibnetdiscover(kDump, "dump"));
  ASSERT_EQ(levels.size(), 3u);
  EXPECT_EQ(levels[0].vertices, 2);
  EXPECT_EQ(levels[1].cables_up, 3);
  EXPECT_DOUBLE_EQ(levels[1].up_bytes_per_second, 150e9);
  EXPECT_DOUBLE_EQ(levels[1].taper, 53.125 / 150);
  EXPECT_EQ(levels[1].sources, std::vector{FabricSource::kDump});
  EXPECT_EQ(levels_of(read_slurm_topology(kSlurm, "t"))[1].taper, 0.0);
  EXPECT_FALSE(rails_of(read_ibnetdiscover(kDump, "dump")).are_rails);
  Fabric rails(FabricSource::kMadeUp);
  for (const char* host : {"a", "b"}) {
    for (const char* adapter : {"mlx5_10", "mlx5_2"}) {
      Cable cable{rails.add_host(host), rails.add_switch(std::string("leaf of ") + adapter)};
      cable.adapter = adapter;
      rails.add_cable(cable);
    }
  }
  rails.find_levels();
  EXPECT_TRUE(rails_of(rails).are_rails);
  EXPECT_EQ(rails_of(rails).leaves, (std::vector{1, 1}));
  EXPECT_EQ(blocks_of(rails, 1), (std::vector{0, 0, 0, 0}));
  EXPECT_EQ(blocks_of(rails, 0), (std::vector{0, -1, -1, 1}));
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

TEST(Cluster, ARunGoesOnWithoutABadSource) {
  const testing::TemporaryFolder folder;
  const std::string dump = (folder.path() / "dump").string();
  std::ofstream(dump) << "nothing\n";
  FabricSources sources;
  sources.dump = dump;
  sources.addresses = {{"leaf1.n1", "switch.node"}};
  const Fabric fabric = read_cluster(sources, false);
  EXPECT_TRUE(fabric.host("n1"));
  ASSERT_EQ(fabric.remarks().size(), 1u);
  EXPECT_EQ(fabric.remarks()[0],
            dump +
                ": no line describes a switch (Switch ...) or an adapter (Ca ...), as a dump of "
                "ibnetdiscover has; it is left out");
  EXPECT_THROW(read_cluster(sources, true), ConfigError);
}

}  // namespace
}  // namespace trireme
