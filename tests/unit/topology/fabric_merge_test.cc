// What several sources tell of a cluster becomes one fabric, and what is told of that.
#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/fabric.h"
#include "trireme/topology/fabric_json.h"
#include "trireme/topology/fabric_summary.h"
#include "trireme/topology/network.h"

#include "support/fabric_samples.h"
#include "support/message_of.h"
#include "support/temporary_folder.h"

namespace trireme {
namespace {

using Names = std::vector<std::string>;
using testing::cables;
using testing::kDump;
using testing::message_of;

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

// Lines of a dump for one more host, which has an adapter, and a cable if `port` tells of one.
std::string more_host(const std::string& name, const std::string& port = "") {
  return "caguid=0xee00\nCa\t1 \"H-000000000000ee00\"\t\t# \"" + name + " mlx5_0\"\n" + port;
}

TEST(Merge, WhereOneTellsNoLeafNothingIsOdd) {
  // The address of a job's node names no switch.
  const Fabric fabric =
      merge_fabrics(fabric_of_addresses({{"l1.host1", "switch.node"}, {"host2", "node"}}),
                    read_ibnetdiscover(kDump, "dump"));
  EXPECT_EQ(fabric.remarks(), Names{});
  EXPECT_EQ(cables(fabric), cables(read_ibnetdiscover(kDump, "dump")));
  EXPECT_EQ(cable_of(fabric, "host1").from, FabricSource::kSlurm);
  EXPECT_EQ(cable_of(fabric, "host2").from, FabricSource::kDump);
  // An adapter has no cable.
  const Fabric apart = merged(kSlurm, kDump + more_host("host3"));
  EXPECT_EQ(apart.remarks(), Names{});
  EXPECT_EQ(cables(apart), cables(read_ibnetdiscover(kDump, "dump")));
}

// Where hosts have two adapters, two leaf switches of a dump are one of Slurm's.
TEST(Merge, AHostThatMovesHasACableToEachRail) {
  Fabric rails(FabricSource::kDump);
  const auto add = [&](const char* leaf, std::vector<const char*> hosts) {
    for (const char* host : hosts) rails.add_cable({rails.add_switch(leaf), rails.add_host(host)});
  };
  add("first1", {"a", "b"}), add("second1", {"a", "b"});
  add("first2", {"c", "d", "e"}), add("second2", {"c", "d", "e"});
  rails.find_levels();
  const Fabric fabric = merge_fabrics(
      read_slurm_topology("SwitchName=l1 Nodes=a,b,e\nSwitchName=l2 Nodes=c,d\n", "t"), rails);
  EXPECT_EQ(fabric.remarks(), (Names{"host 'e': Slurm puts it below 'l1', ibnetdiscover below "
                                     "'first2'; Slurm counts"}));
  EXPECT_EQ(cables(fabric),
            (std::set<std::string>{"first1 - a", "first1 - b", "first1 - e", "first2 - c",
                                   "first2 - d", "second1 - a", "second1 - b", "second1 - e",
                                   "second2 - c", "second2 - d"}));
}

TEST(Merge, HostsThatOneLacksAreNamed) {
  const std::string dump = kDump + more_host("host3");
  EXPECT_EQ(merged("SwitchName=l1 Nodes=host1\nSwitchName=l2 Nodes=host2\n", dump).remarks(),
            (Names{"a host of ibnetdiscover is not in Slurm: host3"}));
  // A job's own addresses are expected to hold no more than the job's hosts.
  EXPECT_EQ(merged("SwitchName=l1 Nodes=host1\n", dump).remarks(), Names{});
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
  // The second port of an adapter is another one, of which the dump has no cable.
  LocalPort second = port("100 Gb/sec (2X HDR)");
  second.number = 2;
  const std::size_t remarks = fabric.remarks().size();
  merge_ports(fabric, "host1", {second});
  EXPECT_EQ(fabric.remarks().size(), remarks);
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

// What leaves a block together is divided among its cables up. A cable between two leaves makes one
// block of them, and leads not up.
TEST(Merge, CablesUpShareWhatWasMeasured) {
  for (const bool joined : {false, true}) {
    Fabric fabric = fabric_of_addresses({{"spine[1-2].leaf1.n1", "switch.switch.node"},
                                         {"spine[1-2].leaf2.n2", "switch.switch.node"}});
    if (joined) fabric.add_cable({fabric.add_switch("leaf1"), fabric.add_switch("leaf2")});
    NetworkRates rates;
    rates.distances = {{}, {1e-6, 9e9, 10e9, 0.0}, {2e-6, 9e9, 10e9, 15e9}};
    merge_rates(fabric, rates);
    const double up = joined ? 15e9 / 4 : 15e9 / 2;
    for (const Cable& cable : fabric.cables()) {
      const auto level = [&](int vertex) {
        return fabric.vertices()[static_cast<std::size_t>(vertex)].level;
      };
      const auto [low, high] = std::minmax({level(cable.a), level(cable.b)});
      EXPECT_DOUBLE_EQ(cable.bytes_per_second, low == high ? 0.0 : low == 0 ? 10e9 : up);
    }
  }
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

TEST(Cluster, AFileIsKnownByItsContents) {
  using Kind = DescriptionKind;
  const auto kind = [](const std::string& text) { return kind_of_description(text); };
  EXPECT_EQ(kind("\n {\"format\": 1}"), Kind::kRates);
  EXPECT_EQ(kind(kDump), Kind::kDump);
  EXPECT_EQ(kind("Ca\t1 \"H-1\"\n"), Kind::kDump);
  EXPECT_EQ(kind(kSlurm), Kind::kSlurm);
  EXPECT_EQ(kind("# Blocks\n blockname=b1 Nodes=n1\n"), Kind::kSlurm);
  EXPECT_EQ(kind("---\n- topology: a\n"), Kind::kSlurm);
  EXPECT_FALSE(kind("ClusterName=c\nSwitchType=none\n"));
  EXPECT_FALSE(kind(""));
  const testing::TemporaryFolder folder;
  const auto write = [&](const char* name, const std::string& text) {
    const std::string path = (folder.path() / name).string();
    std::ofstream(path) << text;
    return path;
  };
  const std::string dump = write("dump", kDump), slurm = write("slurm", kSlurm),
                    rates = write("rates", "{}"), other = write("other", "hello\n");
  const FabricSources all = sources_in(slurm + "," + rates + "," + dump);
  EXPECT_EQ(all.dump, dump);
  EXPECT_EQ(all.slurm, slurm);
  EXPECT_EQ(all.network, rates);
  EXPECT_TRUE(all.sysfs.empty());
  // bad input: `comm.network` names two files of one kind, or one that describes no network | A and
  // B both are dumps of ibnetdiscover: name one of them; FILE: describes no network: expected rates
  // that trireme topo probe has stored, a dump of ibnetdiscover, or Slurm's ... | 2
  EXPECT_EQ(message_of([&] { sources_in(dump + "," + slurm + "," + dump); }),
            dump + " and " + dump + " both are dumps of ibnetdiscover: name one of them");
  EXPECT_EQ(message_of([&] { sources_in(other); }),
            other +
                ": describes no network: expected rates that trireme topo probe has stored, a dump "
                "of ibnetdiscover, or Slurm's topology.conf, topology.yaml or output of scontrol "
                "show topology");
  EXPECT_NE(message_of([&] { sources_in(dump + ","); }).find("cannot be read"), std::string::npos);
}

TEST(Cluster, WhatTheEnvironmentNamesIsFound) {
  const testing::TemporaryFolder folder;
  std::ofstream(folder.path() / "topology.conf") << kSlurm;
  const auto set = [](const char* name, const std::string& value) {
    value.empty() ? unsetenv(name) : setenv(name, value.c_str(), 1);
  };
  const std::string conf = environment("SLURM_CONF"), dump = environment("TRIREME_FABRIC");
  set("SLURM_CONF", (folder.path() / "slurm.conf").string());
  set("TRIREME_FABRIC", "/nowhere/fabric.txt");
  FabricSources found = find_fabric_sources();
  EXPECT_EQ(found.slurm, (folder.path() / "topology.conf").string());
  EXPECT_EQ(found.dump, "/nowhere/fabric.txt");
  std::ofstream(folder.path() / "topology.yaml") << "- topology: a\n";
  EXPECT_EQ(find_fabric_sources().slurm, (folder.path() / "topology.yaml").string());
  // One that cannot be read is not passed over in silence: whoever reads it says so.
  const auto yaml = folder.path() / "topology.yaml";
  std::filesystem::remove(yaml);
  std::filesystem::create_symlink(yaml, yaml);
  EXPECT_EQ(find_fabric_sources().slurm, yaml.string());
  EXPECT_EQ(message_of([] { read_cluster(find_fabric_sources(), true); }),
            "--slurm " + yaml.string() + ": cannot be read: Too many levels of symbolic links");
  found.addresses.clear();
  found.sysfs.clear();
  // bad input: `train`, `topo`, `doctor`: `TRIREME_FABRIC` names a file that cannot be read |
  // comm.network: TRIREME_FABRIC FILE: cannot be read: No such file or directory; it is left out |
  // 0; 2
  const std::vector<std::string> remarks = read_cluster(found, false).remarks();
  ASSERT_EQ(remarks.size(), 1u);
  EXPECT_EQ(remarks[0],
            "TRIREME_FABRIC /nowhere/fabric.txt: cannot be read: No such file or directory; it is "
            "left out");
  set("SLURM_CONF", conf);
  set("TRIREME_FABRIC", dump);
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
