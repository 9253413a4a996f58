// The levels of switches in fabrics that are no trees, and what differs from its like.
#include <algorithm>
#include <map>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/fabric_json.h"
#include "trireme/topology/fabric_summary.h"
#include "trireme/topology/network.h"
#include "trireme/topology/odd_cables.h"

namespace trireme {
namespace {

using Names = std::vector<std::string>;

// Makes what ibnetdiscover prints. Hosts are called "n...", all others are switches.
class DumpMaker {
 public:
  DumpMaker& cable(const std::string& a, const std::string& b, const std::string& rate = "4xHDR") {
    const int at_a = ++ports_[a], at_b = ++ports_[b];
    lines_[a] +=
        fmt::format("[{}](1{}) \t\"{}\"[{}]\t# \"x\" {}\n", at_a, guid(a), id(b), at_b, rate);
    lines_[b] +=
        fmt::format("[{}](1{}) \t\"{}\"[{}]\t# \"x\" {}\n", at_b, guid(b), id(a), at_a, rate);
    return *this;
  }
  // Hosts "nFIRST" to "nLAST" on a switch.
  DumpMaker& hosts(const std::string& on, int first, int last) {
    for (int i = first; i <= last; ++i) cable(on, fmt::format("n{}", i));
    return *this;
  }
  DumpMaker& each(const Names& lower, const Names& upper) {
    for (const std::string& low : lower) {
      for (const std::string& high : upper) cable(low, high);
    }
    return *this;
  }
  Fabric fabric() const {
    std::string text;
    for (const auto& [name, lines] : lines_) {
      text += fmt::format("{} 64 \"{}\" # \"{}{}\"\n{}\n", is_host(name) ? "Ca" : "Switch",
                          id(name), name, is_host(name) ? " mlx5_0" : "", lines);
    }
    return read_ibnetdiscover(text, "dump");
  }

 private:
  static bool is_host(const std::string& name) { return name.starts_with('n'); }
  std::string guid(const std::string& name) const {
    const auto [entry, is_new] = guids_.emplace(name, guids_.size() + 0xa0);
    return fmt::format("{:x}", entry->second);
  }
  std::string id(const std::string& name) const {
    return fmt::format("{}-{:0>16}", is_host(name) ? 'H' : 'S', guid(name));
  }

  std::map<std::string, std::string> lines_;
  std::map<std::string, int> ports_;
  mutable std::map<std::string, std::size_t> guids_;
};

// The name without its GUID.
std::string short_name(const FabricVertex& vertex) {
  return vertex.name.substr(0, vertex.name.find(" ("));
}

// The switches of each level, from level 1; those without one last.
std::vector<std::set<std::string>> switches_of(const Fabric& fabric) {
  std::vector<std::set<std::string>> levels(levels_of(fabric).size());
  for (const FabricVertex& vertex : fabric.vertices()) {
    if (!vertex.is_switch) continue;
    levels.at(vertex.level < 0 ? levels.size() - 1 : static_cast<std::size_t>(vertex.level) - 1)
        .insert(short_name(vertex));
  }
  return levels;
}
using Switches = std::vector<std::set<std::string>>;

// "n1 n2 | n3 n4": which hosts share leaf switches.
std::string leaf_groups(const Fabric& fabric) {
  const std::vector<int> blocks = blocks_of(fabric, 1);
  std::map<int, std::string> groups;
  std::vector<int> order;
  for (const int host : hosts_by_name(fabric)) {
    const int block = blocks[static_cast<std::size_t>(host)];
    if (groups[block].empty()) order.push_back(block);
    groups[block] +=
        (groups[block].empty() ? "" : " ") + fabric.vertices()[static_cast<std::size_t>(host)].name;
  }
  std::string text;
  for (const int block : order) text += (text.empty() ? "" : " | ") + groups[block];
  return text;
}

TEST(Levels, AHostOnASpineMakesItNoLeaf) {
  const Fabric fabric = DumpMaker()
                            .hosts("leaf1", 1, 2)
                            .hosts("leaf2", 3, 4)
                            .each({"leaf1", "leaf2"}, {"spine1", "spine2"})
                            .cable("spine1", "nas")
                            .fabric();
  EXPECT_EQ(switches_of(fabric), (Switches{{"leaf1", "leaf2"}, {"spine1", "spine2"}, {}}));
  EXPECT_EQ(leaf_groups(fabric), "n1 n2 | n3 n4 | nas");
  EXPECT_DOUBLE_EQ(levels_of(fabric)[1].taper, 1.0);
  EXPECT_EQ(levels_of(fabric)[0].cables_up, 4);  // to leaf switches
  // Messages to the host on the spine leave a leaf, and use no other leaf's cables.
  const TreeNetwork network(fabric, {*fabric.host("n1"), *fabric.host("n3"), *fabric.host("nas")},
                            {});
  EXPECT_EQ(network.tiers(), 1);
  EXPECT_NE(network.block(1, 0), network.block(1, 2));
  EXPECT_DOUBLE_EQ(network.way_up(1, 2).bytes_per_second, 25e9);
  EXPECT_DOUBLE_EQ(network.way_up(1, 0).bytes_per_second, 50e9);
  // What is written and read again, or is a part, has the same levels.
  EXPECT_EQ(leaf_groups(fabric_from_json(json_of(fabric))), leaf_groups(fabric));
  const Fabric part =
      part_of(fabric, {*fabric.host("n1"), *fabric.host("n3"), *fabric.host("nas")});
  EXPECT_EQ(leaf_groups(part), "n1 | n3 | nas");
  EXPECT_EQ(leaf_groups(fabric_from_json(json_of(part))), "n1 | n3 | nas");
}

TEST(Levels, HostsOnHigherSwitchesOfThreeLevels) {
  DumpMaker maker;
  for (int pod = 0; pod < 3; ++pod) {
    const auto name = [&](const char* kind, int i) { return fmt::format("{}{}{}", kind, pod, i); };
    // The last leaf of each has fewer hosts than its cables upwards.
    maker.hosts(name("leaf", 0), 10 * pod + 1, 10 * pod + 4);
    maker.hosts(name("leaf", 1), 10 * pod + 5, 10 * pod + 6);
    maker.each({name("leaf", 0), name("leaf", 1)},
               {name("mid", 0), name("mid", 1), name("mid", 2)});
    maker.each({name("mid", 0), name("mid", 1), name("mid", 2)}, {"core0", "core1"});
  }
  maker.cable("core0", "nas").cable("mid00", "nlogin").hosts("core1", 98, 99);
  const Fabric fabric = maker.fabric();
  EXPECT_EQ(
      switches_of(fabric),
      (Switches{{"leaf00", "leaf01", "leaf10", "leaf11", "leaf20", "leaf21"},
                {"mid00", "mid01", "mid02", "mid10", "mid11", "mid12", "mid20", "mid21", "mid22"},
                {"core0", "core1"},
                {}}));
  EXPECT_EQ(
      leaf_groups(fabric),
      "n1 n2 n3 n4 | n5 n6 | n11 n12 n13 n14 | n15 n16 | n21 n22 n23 n24 | n25 n26 | n98 | n99 | "
      "nas | nlogin");
}

TEST(Levels, SwitchesThatAreAlikeStayOneLevel) {
  // Two that are cabled to each other, with hosts on both.
  EXPECT_EQ(
      switches_of(DumpMaker().hosts("a", 1, 3).hosts("b", 4, 4).each({"a"}, {"b", "b"}).fabric()),
      (Switches{{"a", "b"}, {}}));
  // A dragonfly: groups of switches that are all cabled to each other, of which some have few hosts
  // or none.
  DumpMaker dragonfly, ring;
  for (int group = 0; group < 3; ++group) {
    for (int i = 0; i < 4; ++i) {
      const std::string self = fmt::format("s{}{}", group, i);
      const int host = 10 * group + 3 * i, count = group == 1 && i == 2 ? 1 : 3;
      if (group != 0 || i != 3) dragonfly.hosts(self, host, host + count - 1);
      for (int j = i + 1; j < 4; ++j) dragonfly.cable(self, fmt::format("s{}{}", group, j));
    }
  }
  dragonfly.cable("s00", "s10").cable("s01", "s20").cable("s12", "s21").cable("s12", "s02");
  const Fabric groups = dragonfly.fabric();
  EXPECT_EQ(levels_of(groups).size(), 2u);
  EXPECT_EQ(leaf_groups(groups).find('|'), std::string::npos);
  // A ring, as of a torus.
  for (int i = 0; i < 6; ++i) {
    ring.hosts(fmt::format("s{}", i), 10 * i, 10 * i + (i == 2 ? 0 : 3));
    ring.cable(fmt::format("s{}", i), fmt::format("s{}", (i + 1) % 6));
  }
  EXPECT_EQ(levels_of(ring.fabric()).size(), 2u);
}

TEST(Levels, SwitchesWithoutHostsAreNoLevel) {
  const Names spines = {"spine1", "spine2"};
  // A rack without power.
  const Fabric off = DumpMaker()
                         .hosts("leaf1", 1, 4)
                         .hosts("leaf2", 5, 8)
                         .each({"leaf1", "leaf2", "leaf3"}, spines)
                         .fabric();
  EXPECT_EQ(switches_of(off), (Switches{{"leaf1", "leaf2"}, {"spine1", "spine2"}, {"leaf3"}}));
  EXPECT_DOUBLE_EQ(levels_of(off)[1].taper, 2.0);
  // Slurm knows the hosts of the rack: the spines are above it too, whatever else has power.
  const Fabric known =
      merge_fabrics(read_slurm_topology("SwitchName=l1 Nodes=n[1-4]\nSwitchName=l2 Nodes=n[5-8]\n"
                                        "SwitchName=s Switches=l[1-2]\n",
                                        "t"),
                    DumpMaker().hosts("leaf1", 1, 4).each({"leaf1", "leaf2"}, spines).fabric());
  EXPECT_EQ(switches_of(known), (Switches{{"leaf1", "l2"}, {"spine1", "spine2"}, {"leaf2"}}));
  // A whole pod without power, next to cores that join two others.
  DumpMaker pods;
  for (const char* pod : {"a", "b", "c"}) {
    const std::string name = pod;
    pods.each({name + "leaf1", name + "leaf2"}, {name + "mid"}).cable(name + "mid", "core");
  }
  pods.hosts("aleaf1", 1, 2).hosts("aleaf2", 3, 4).hosts("bleaf1", 5, 6).hosts("bleaf2", 7, 8);
  EXPECT_EQ(switches_of(pods.fabric()), (Switches{{"aleaf1", "aleaf2", "bleaf1", "bleaf2"},
                                                  {"amid", "bmid"},
                                                  {"core"},
                                                  {"cleaf1", "cleaf2", "cmid"}}));
}

TEST(Levels, PlanesOfRailsHaveLevelsOfTheirOwn) {
  DumpMaker maker;
  for (int host = 1; host <= 4; ++host) {
    for (const char* plane : {"p", "q"}) {
      maker.cable(fmt::format("{}leaf{}", plane, (host + 1) / 2), fmt::format("n{}", host));
    }
  }
  for (const std::string plane : {"p", "q"}) {
    maker.each({plane + "leaf1", plane + "leaf2"}, {plane + "spine"});
  }
  maker.cable("pspine", "nas");
  const Fabric fabric = maker.fabric();
  EXPECT_EQ(switches_of(fabric),
            (Switches{{"pleaf1", "pleaf2", "qleaf1", "qleaf2"}, {"pspine", "qspine"}, {}}));
  EXPECT_EQ(leaf_groups(fabric), "n1 n2 | n3 n4 | nas");
}

TEST(Levels, SlurmSaysWhichSwitchesAreLeaves) {
  // There are as many servers as leaves: alone, the dump could be of three leaves.
  const auto dump = [] {
    return DumpMaker()
        .hosts("leaf1", 1, 3)
        .hosts("leaf2", 4, 6)
        .each({"leaf1", "leaf2"}, {"spine"})
        .cable("spine", "nas1")
        .cable("spine", "nas2")
        .fabric();
  };
  EXPECT_EQ(leaf_groups(dump()), "n1 n2 n3 n4 n5 n6 nas1 nas2");
  const Fabric fabric = merge_fabrics(
      read_slurm_topology("SwitchName=l1 Nodes=n[1-3]\nSwitchName=l2 Nodes=n[4-6]\n", "t"), dump());
  EXPECT_EQ(leaf_groups(fabric), "n1 n2 n3 | n4 n5 n6 | nas1 | nas2");
  EXPECT_EQ(leaf_groups(fabric_from_json(json_of(fabric))), leaf_groups(fabric));
  // What Slurm puts below a leaf is there, although its cable ends at a spine.
  const Fabric login = merge_fabrics(
      read_slurm_topology("SwitchName=l1 Nodes=n[1-3],nlogin\nSwitchName=l2 Nodes=n[4-6]\n", "t"),
      DumpMaker()
          .hosts("leaf1", 1, 3)
          .hosts("leaf2", 4, 6)
          .each({"leaf1", "leaf2"}, {"spine"})
          .cable("spine", "nlogin")
          .fabric());
  EXPECT_EQ(leaf_groups(login), "n1 n2 n3 nlogin | n4 n5 n6");
}

TEST(Levels, ALongChainOfSwitches) {
  DumpMaker maker;
  maker.hosts("s0", 1, 2).hosts("s2000", 3, 4);
  for (int i = 0; i < 2000; ++i) maker.cable(fmt::format("s{}", i), fmt::format("s{}", i + 1));
  EXPECT_EQ(levels_of(maker.fabric()).size(), 1002u);
}

TEST(OddCables, SlowOnesAndTapers) {
  DumpMaker maker;
  for (int leaf = 1; leaf <= 3; ++leaf) {
    const std::string name = fmt::format("leaf{}", leaf);
    maker.hosts(name, 10 * leaf, 10 * leaf + 2);
    maker.cable(name, fmt::format("n{}", 10 * leaf + 3), leaf == 1 ? "2xHDR" : "4xHDR");
    maker.cable(name, "spine1", leaf == 2 ? "4xQDR" : "4xHDR");
    if (leaf != 2) maker.cable(name, "spine2");
  }
  const Fabric fabric = maker.fabric();
  Names slow, tapers;
  for (const SlowCable& each : slow_cables(fabric)) slow.push_back(text_of(fabric, each));
  for (const OddTaper& each : odd_tapers(fabric)) tapers.push_back(text_of(fabric, each));
  ASSERT_EQ(slow.size(), 2u);
  std::ranges::sort(slow);
  EXPECT_TRUE(slow[0].starts_with("leaf2 (")) << slow[0];
  EXPECT_TRUE(slow[0].ends_with(
      "): ibnetdiscover says 32 Gbit/s; usual from switches of level 1 is 200 Gbit/s"))
      << slow[0];
  EXPECT_TRUE(slow[1].starts_with("n13 mlx5_0 to leaf1 (")) << slow[1];
  EXPECT_TRUE(slow[1].ends_with("): ibnetdiscover says 100 Gbit/s; usual there is 200 Gbit/s"))
      << slow[1];
  ASSERT_EQ(tapers.size(), 1u);
  EXPECT_TRUE(tapers[0].starts_with("leaf2 (")) << tapers[0];
  EXPECT_TRUE(tapers[0].ends_with("): a taper of 25:1; usual is 2:1")) << tapers[0];
  EXPECT_TRUE(odd_tapers(fabric).front().is_worse());
  // All alike, or nothing known: nothing to say.
  const Fabric alike =
      DumpMaker().hosts("a", 1, 2).hosts("b", 3, 4).each({"a", "b"}, {"spine"}).fabric();
  EXPECT_TRUE(slow_cables(alike).empty());
  EXPECT_TRUE(odd_tapers(alike).empty());
  EXPECT_TRUE(odd_tapers(read_slurm_topology("SwitchName=a Nodes=n[1-2]\nSwitchName=b Nodes=n3\n"
                                             "SwitchName=s Switches=a,b\n",
                                             "t"))
                  .empty());
}

}  // namespace
}  // namespace trireme
