// Readers of a cluster's descriptions.
#include "trireme/topology/fabric.h"

#include <algorithm>
#include <random>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/base/node_names.h"

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
  EXPECT_EQ(refusal([] { read_ibnetdiscover("hello\n", "dump"); }),
            "dump: no line describes a switch (Switch ...) or an adapter (Ca ...), as a dump of "
            "ibnetdiscover has");
}

// Whatever the text, a reader ends with a fabric or one error.
TEST(Readers, SurviveWhatIsNoDescription) {
  const std::string slurm =
      "SwitchName=leaf1 Nodes=n[1-2]\nSwitchName=leaf2 Nodes=r[1-2]n[03-12],x\\\n\nBlockName=b "
      "Nodes=z\nSwitchName=s Switches=leaf[1-2]\n";
  std::mt19937_64 random(7);
  int accepted = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = round % 2 == 0 ? kDump : slurm;
    for (auto changes = random() % 8 + 1; changes > 0; --changes) {
      const std::size_t at = random() % text.size();
      switch (random() % 4) {
        case 0:
          text[at] = static_cast<char>(random());
          break;
        case 1:
          text.erase(at, random() % 40);
          break;
        case 2:
          text = text.substr(0, at) + text.substr(random() % text.size(), random() % 40) +
                 text.substr(at);
          break;
        default:
          text.insert(at, 1, "[]-,=\"\\\n9"[random() % 9]);
      }
      if (text.empty()) text.push_back('x');
    }
    try {
      const Fabric fabric =
          round % 2 == 0 ? read_ibnetdiscover(text, "a") : read_slurm_topology(text, "a");
      for (const Cable& cable : fabric.cables()) {
        ASSERT_LT(static_cast<std::size_t>(std::max(cable.a, cable.b)), fabric.vertices().size());
      }
      ++accepted;
    } catch (const ConfigError&) {
    }
  }
  EXPECT_GT(accepted, 1000);
  EXPECT_LT(accepted, 4000);
}

}  // namespace
}  // namespace trireme
