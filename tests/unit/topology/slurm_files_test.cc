// Slurm's topology.conf as its own parser reads it, and adapters that bear no host's name.
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/error.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/fabric.h"

#include "support/fabric_samples.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

using Names = std::vector<std::string>;
using testing::cables;
using testing::kDump;
using testing::message_of;

const std::set<std::string> kTree = {"leaf1 - n1", "leaf1 - n2",    "leaf2 - n3",
                                     "leaf2 - n4", "spine - leaf1", "spine - leaf2"};

TEST(SlurmFile, IsReadAsSlurmReadsIt) {
  const auto read = [](const std::string& text) { return read_slurm_topology(text, "t"); };
  const std::string spine = "SwitchName=spine Switches=leaf[1-2]\n";
  for (const std::string leaves : {
           "SwitchName=leaf1 Nodes=n[1-2]#first rack\nSwitchName=leaf2 Nodes=n[3-4] # second\n",
           "SwitchName = leaf1 Nodes\t=\tn[1-2]\n  switchname= leaf2 NODES =n[3-4]\n",
           "SwitchName=\"leaf1\" Nodes=\"n[1-2]\"\nSwitchName=\"leaf2\" Nodes=\"n3, n4\"\n",
           "SwitchName=leaf1 Nodes=n1,\\\nn2\nSwitchName=leaf2 \\   \n  Nodes=n[3-\\\n4]\n",
           "SwitchName=leaf1 Nodes=n[1-2] # no end of the line \\\nSwitchName=leaf2 Nodes=n[3-4]\n",
           "SwitchName=leaf1 Nodes=n[1-2]\r\n\r\nSwitchName=leaf2 Nodes=n\\[3-4\\]\r\n",
           "SwitchName=leaf1 Nodes=n[1-2] LinkSpeed=7\nSwitchName=leaf2 Nodes=n[3-4]\n#\\#\n",
       }) {
    const Fabric fabric = read(spine + leaves);
    EXPECT_EQ(cables(fabric), kTree) << leaves;
    EXPECT_EQ(fabric.remarks(), Names{}) << leaves;
  }
  // A file for both plugins.
  const Fabric both = read(
      "BlockName=b1 Nodes=n[1-4]\nBlockName=b2 Nodes=n[5-8]\nSwitchName=leaf1 Nodes=n[1-2]\n"
      "SwitchName=leaf2 Nodes=n[3-4]\n" +
      spine);
  EXPECT_EQ(cables(both), kTree);
  EXPECT_EQ(both.remarks(),
            (Names{"t, line 1: lines of BlockName beside the switches; these count"}));
  // The controller tells a switch without nodes so.
  const Fabric told = read(
      "SwitchName=leaf1 Level=0 LinkSpeed=1 Nodes= Switches=(null)\n"
      "SwitchName=leaf2 Level=0 LinkSpeed=1 Nodes=n1\n");
  EXPECT_EQ(cables(told), (std::set<std::string>{"leaf2 - n1"}));
  EXPECT_EQ(told.remarks(), Names{});
  EXPECT_EQ(cables(read("BlockName = b1 Nodes = n1 # a\nBlockSizes=1\n")),
            (std::set<std::string>{"b1 - n1", "all blocks - b1"}));
}

TEST(SlurmFile, WhatIsNotUnderstoodIsSaid) {
  // bad input: `topo`: in Slurm's topology a word that is no KEY=VALUE, an unknown key, a line for
  // no switch, switches that are described nowhere | remark: FILE, line 1: 'oops' is not
  // understood; expected KEY=VALUE; ...: the key 'colour' is not known; it is left out; ... | 0
  const Fabric fabric = read_slurm_topology(
      "SwitchName=a Nodes=n1 oops Nodes=n9\nSwitchName=b Colour=red \\\n Nodes=n2\nNodes=n5\n"
      "SwitchName=c Switches=a,b,d[1-2]\nSwitchName=\nSwitchName=e Nodes=n6 Nodes=n7\n"
      "SwitchName=f Nodes=n8 Switches=a\n",
      "t");
  EXPECT_EQ(fabric.remarks(),
            (Names{"t, line 1: 'oops Nodes=n9' is not understood; expected KEY=VALUE",
                   "t, line 2: the key 'colour' is not known; it is left out",
                   "t, line 4: neither SwitchName nor BlockName says of what these are",
                   "t, line 6: a switch without a name",
                   "t, line 7: 'nodes' a second time; the last one counts",
                   "t, line 8: switch 'f' has nodes and switches below it; the nodes count",
                   "t: switches are named below others and described nowhere: d[1-2]"}));
  std::string many;
  for (int i = 0; i < 1000; ++i) many += fmt::format("SwitchName=s{} word\n", i);
  EXPECT_EQ(read_slurm_topology(many, "t").remarks().size(), 101u);
}

TEST(SlurmFile, IncludedFilesAreRead) {
  const testing::TemporaryFolder folder;
  const auto write = [&](const std::string& name, const std::string& text) {
    std::ofstream(folder.path() / name) << text;
    return (folder.path() / name).string();
  };
  FabricSources sources;
  sources.slurm = write("topology.conf", "# Racks\nInclude leaves.conf too\nINCLUDE " +
                                             (folder.path() / "more").string() +
                                             " # whole\nSwitchName=spine Switches=leaf[1-2]\n");
  write("leaves.conf", "SwitchName=leaf1 Nodes=n[1-2] odd\n");
  write("more", "SwitchName=leaf2 Nodes=n[3-4]\n");
  const Fabric fabric = read_cluster(sources, true);
  EXPECT_EQ(cables(fabric), kTree);
  EXPECT_EQ(
      fabric.remarks(),
      (Names{sources.slurm + ", line 2: 'too' is not understood; expected the end of the line",
             "leaves.conf, line 1: 'odd' is not understood; expected KEY=VALUE"}));
  EXPECT_EQ(sources_in(sources.slurm).slurm, sources.slurm);
  EXPECT_EQ(kind_of_description("Include leaves.conf\n"), DescriptionKind::kSlurm);
  // bad input: `topo`: Slurm's topology includes a file that is not there, or itself | FILE, line
  // 1: Include none: cannot be read: No such file or directory; ...: at most 256 files are read,
  // ... | 2
  sources.slurm = write("a", "Include none\n");
  EXPECT_NE(message_of([&] {
              read_cluster(sources, true);
            }).find("/a, line 1: Include " + folder.path().string() + "/none: cannot be read"),
            std::string::npos);
  EXPECT_EQ(read_cluster(sources, false).remarks().size(), 1u);
  sources.slurm = write("b", "Include b\nInclude b\n");
  EXPECT_EQ(
      message_of([&] { read_cluster(sources, true); }),
      "b, line 1: Include b: at most 256 files are read, each from at most 8 that include one "
      "another");
  // Nobody to read them: they are named.
  EXPECT_EQ(read_slurm_topology("Include x\nSwitchName=a Nodes=n1\n", "t").remarks(),
            (Names{"t, line 1: Include x is not followed"}));
}

// Cards with two adapters each, whose descriptions are given.
Fabric fabric_of_adapters(const Names& descriptions, int adapters_of_a_card = 1) {
  std::string text = "Switch\t64 \"S-00000000000000aa\"\t# \"leaf\"\n";
  for (std::size_t i = 0; i < descriptions.size(); ++i) {
    text += fmt::format("[{}]\t\"H-{:016x}\"[1](b)\t# \"x\" lid 1 4xHDR\n", i + 1, 0xb0 + i);
  }
  for (std::size_t i = 0; i < descriptions.size(); ++i) {
    text += fmt::format(
        "\nsysimgguid={:#x}\ncaguid={:#x}\nCa\t1 \"H-{:016x}\"\t# \"{}\"\n"
        "[1]({:x}) \t\"S-00000000000000aa\"[{}]\t# lid 1 4xHDR\n",
        0xf0 + i / static_cast<std::size_t>(adapters_of_a_card), 0xb0 + i, 0xb0 + i,
        descriptions[i], 0x1b0 + i, i + 1);
  }
  return read_ibnetdiscover(text, "dump");
}

Names hosts_of(const Fabric& fabric) {
  Names names;
  for (const FabricVertex& vertex : fabric.vertices()) {
    if (!vertex.is_switch) names.push_back(vertex.name);
  }
  return names;
}

TEST(Ibnetdiscover, AdaptersWithoutAHostsNameAreNoHostTogether) {
  // bad input: `topo`: a dump with adapters that bear their factory's name, or `localhost` |
  // remark: FILE: 2 adapters are without the name of their host, such as 'localhost': each card
  // counts as a host | 0
  for (const std::string name :
       {"MT4123 ConnectX6   Mellanox Technologies", "localhost mlx5_0",
        "localhost.localdomain HCA-1", "(none) mlx5_0", "Mellanox Technologies", "ConnectX-7",
        "mlx5_0", "hfi1_0", "QLogic Infiniband HCA", "MT25408 ConnectX Mellanox Technologies"}) {
    const Fabric fabric = fabric_of_adapters({name, name, "n1 mlx5_0"});
    const std::string host = name.substr(0, name.find(' '));
    EXPECT_EQ(hosts_of(fabric),
              (Names{host + " (00000000000000f0)", host + " (00000000000000f1)", "n1"}));
    EXPECT_EQ(fabric.remarks(),
              (Names{fmt::format("dump: 2 adapters are without the name of their host, such as "
                                 "'{}': each card counts as a host",
                                 host)}));
  }
  // The adapters of one card are on one host.
  EXPECT_EQ(hosts_of(fabric_of_adapters({"localhost mlx5_0", "localhost mlx5_1"}, 2)),
            Names{"localhost (00000000000000f0)"});
  // Hosts whose names begin like those.
  EXPECT_EQ(hosts_of(fabric_of_adapters({"MT1a mlx5_0", "mt4123 mlx5_0", "qib mlx5_0", "intel2 a",
                                         "mlx5_a b", "nonesuch c"})),
            (Names{"MT1a", "mt4123", "qib", "intel2", "mlx5_a", "nonesuch"}));
}

TEST(Ibnetdiscover, MoreNodesThanAnyFabricHas) {
  // bad input: `topo`: a dump of more than 262,144 switches and adapters | FILE, line 262145: more
  // than 262144 switches and adapters | 2
  std::string text;
  for (std::size_t i = 0; i <= kMostNames; ++i) text += fmt::format("Switch \"S-{:x}\"\n", i + 1);
  EXPECT_EQ(message_of([&] { read_ibnetdiscover(text, "dump"); }),
            "dump, line 262145: more than 262144 switches and adapters");
}

TEST(Ibnetdiscover, TwoCardsOfOneNameAreTwoHosts) {
  const Fabric cloned =
      fabric_of_adapters({"node mlx5_0", "node mlx5_0", "n1 mlx5_0", "n1 mlx5_1", "n2", "n2"});
  EXPECT_EQ(hosts_of(cloned),
            (Names{"node (00000000000000f0)", "node (00000000000000f1)", "n1", "n2"}));
  EXPECT_EQ(cloned.remarks(),
            Names{"dump: 2 adapters are called 'node mlx5_0': each card counts as a host"});
  // This host's ports are those of the adapter with their GUID, whatever it is called.
  Fabric fabric = fabric_of_adapters({"localhost mlx5_0", "localhost mlx5_0"});
  merge_ports(fabric, "n1",
              {{.adapter = "mlx5_0",
                .number = 1,
                .guid = 0xb1,
                .state = "DOWN",
                .physical_state = "Polling",
                .link_layer = "InfiniBand",
                .rate = "",
                .subnet = "",
                .cpus = ""}});
  ASSERT_EQ(fabric.remarks().size(), 2u);
  EXPECT_EQ(fabric.remarks()[1],
            "n1 mlx5_0 port 1: ibnetdiscover has a cable there, in sysfs it is DOWN (Polling)");
}

}  // namespace
}  // namespace trireme
