// The picture of a fabric: ranks on their hosts, and what each link carries in a step.
#include "trireme/report/fabric_svg.h"

#include <cstddef>
#include <string>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "trireme/base/json.h"
#include "trireme/io/whole_file.h"
#include "trireme/report/fabric_record.h"

#include "support/temporary_folder.h"

namespace trireme {
namespace {

std::size_t count(const std::string& text, const std::string& part) {
  std::size_t found = 0;
  for (std::size_t at = 0; (at = text.find(part, at)) != std::string::npos; ++at) ++found;
  return found;
}

TEST(FabricSvg, TheLoadOfLinks) {
  const Fabric fabric = make_fat_tree({{2, 10e9}, {2, 0.0}}, 10e9);  // four hosts, two leaves
  FabricDrawing drawing{"Load"};
  drawing.cable_bytes.assign(fabric.cables().size(), 1e6);
  drawing.cable_bytes.back() = 4e6;  // the way up of the second leaf
  drawing.cable_bytes.front() = 0.0;
  const std::string svg = svg_of_fabric(fabric, drawing);
  EXPECT_NE(svg.find("a step's load of links: 0"), std::string::npos) << svg;
  EXPECT_NE(svg.find(">400.0 us</text>"), std::string::npos) << svg;
  // The worst link is as deep as can be, one with a quarter of its load is pale.
  EXPECT_NE(
      svg.find("class=\"s1\" stroke-opacity=\"1.00\" style=\"stroke-width:4.0\"><title>switch2.0 "
               "- switch1.1: 1 cable, 80 Gbit/s each way, from assumption; 3.81 MiB a step, 400.0 "
               "us</title>"),
      std::string::npos)
      << svg;
  EXPECT_NE(
      svg.find("class=\"s1\" stroke-opacity=\"0.40\" style=\"stroke-width:1.8\"><title>switch2.0 "
               "- switch1.0: 1 cable"),
      std::string::npos)
      << svg;
  // Three hosts have a load and one has none.
  EXPECT_EQ(count(svg, "class=\"f1\" fill-opacity=\"0.40\"><title>host"), 3u) << svg;
  EXPECT_EQ(count(svg, "class=\"host\"><title>host0: "), 1u) << svg;
  EXPECT_EQ(svg_of_fabric(fabric, {"No load"}).find("a step"), std::string::npos);
  drawing.cable_bytes.assign(fabric.cables().size(), 0.0);
  EXPECT_NE(svg_of_fabric(fabric, drawing).find("nothing crosses a link in a step"),
            std::string::npos);
}

TEST(FabricSvg, AnUnknownRateCountsAsAssumed) {
  Fabric fabric(FabricSource::kSlurm);
  fabric.add_cable({fabric.add_switch("leaf"), fabric.add_host("n1")});
  fabric.find_levels();
  const std::string svg = svg_of_fabric(fabric, {.title = "Load", .cable_bytes = {12.5e6}});
  EXPECT_NE(svg.find("n1: 1 cable, unknown rate each way, from Slurm; 11.9 MiB a step, 1.0 ms"),
            std::string::npos)
      << svg;
}

// Each dimension has a colour, and its indices are shades of it.
TEST(FabricSvg, RanksByDimension) {
  const Fabric fabric = make_fat_tree({{2, 10e9}, {2, 0.0}}, 10e9);
  FabricDrawing drawing{"Ranks"};
  drawing.grid = {2, 1, 2};
  for (const char* host : {"host0", "host0", "host3", "host3"}) {
    drawing.host_of.push_back(fabric.host(host).value());
  }
  const std::string svg = svg_of_fabric(fabric, drawing);
  for (const char* cell : {"class=\"f0\" fill-opacity=\"0.20\"><title>place 1: data 0<",
                           "class=\"f3\" fill-opacity=\"1.00\"><title>place 1: tensor 1<",
                           "class=\"f0\" fill-opacity=\"1.00\"><title>place 2: data 1<",
                           "class=\"f3\" fill-opacity=\"0.20\"><title>place 2: tensor 0<"}) {
    EXPECT_EQ(count(svg, cell), 1u) << cell << svg;
  }
  EXPECT_EQ(count(svg, "pipeline"), 0u) << svg;
}

// A row of text for each leaf; spines that all leaves have are one box.
TEST(FabricSvg, ManyHostsAreText) {
  Fabric fabric(FabricSource::kDump);
  FabricDrawing drawing{"Many"};
  for (int i = 0; i < 600; ++i) {
    const int host = fabric.add_host(fmt::format("n{}", i));
    fabric.add_cable({fabric.add_switch(fmt::format("leaf{}", i / 100)), host, 1e9});
    drawing.host_of.push_back(host);
  }
  for (int i = 0; i < 48; ++i) {
    fabric.add_cable({fabric.add_switch(fmt::format("spine{}", i % 8)),
                      fabric.add_switch(fmt::format("leaf{}", i / 8)), 1e9});
  }
  fabric.find_levels();
  drawing.grid = {600, 1, 1};
  drawing.cable_bytes.assign(fabric.cables().size(), 1e6);
  const std::string svg = svg_of_fabric(fabric, drawing);
  EXPECT_NE(svg.find(">100 hosts: n[100-199]; data 100-199</text>"), std::string::npos) << svg;
  EXPECT_NE(svg.find("<title>8 switches: spine[0-7], level 2</title>"), std::string::npos) << svg;
  EXPECT_NE(
      svg.find("spine[0-7] - leaf0: 8 cables, 64 Gbit/s each way, from ibnetdiscover; 7.63 MiB a "
               "step, 1.0 ms"),
      std::string::npos)
      << svg;
  EXPECT_LT(svg.size(), 10000u);
}

TEST(FabricSvg, NothingIsAPictureToo) {
  EXPECT_NE(svg_of_fabric(Fabric(FabricSource::kMadeUp), {"Nothing"}).find("</svg>"),
            std::string::npos);
}

FabricRecord small_record() {
  FabricRecord record{.fabric = make_fat_tree({{2, 1e9}, {1, 0.0}}, 1e9),
                      .source = "rates.json",
                      .grid = {1, 1, 2},
                      .host_of = {},
                      .traffic = {.tensor = 3e6},
                      .cable_bytes = {}};
  record.host_of = {record.fabric.host("host1").value(), record.fabric.host("host0").value()};
  record.cable_bytes.assign(record.fabric.cables().size(), 3e6);
  return record;
}

TEST(FabricRecord, IsReadAsItWasWritten) {
  const testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "fabric.json").string(), text = to_json(small_record());
  EXPECT_FALSE(read_fabric_record(path));
  write_whole_file(path, text);
  const auto record = read_fabric_record(path);
  ASSERT_TRUE(record);
  EXPECT_EQ(to_json(*record), text);
  EXPECT_EQ(svg_of(*record), svg_of(small_record()));
}

// Whatever the file holds, there is a record or there is none.
TEST(FabricRecord, DamagedOnesAreNone) {
  const testing::TemporaryFolder folder;
  const std::string path = (folder.path() / "fabric.json").string(), text = to_json(small_record());
  const auto is_read = [&](const std::string& changed) {
    write_whole_file(path, changed);
    return read_fabric_record(path).has_value();
  };
  for (const auto& [what, by] :
       {std::pair(R"("format_version":1)", R"("format_version":2)"),
        {R"("tensor":2)", R"("tensor":1048577)"},
        {R"("data":1,"pipeline":1)", R"("data":1048576,"pipeline":1048576)"},
        {R"("places":[)", R"("places":[0,)"},
        {R"("places":[)", R"("places":[99,)"},
        {R"("cable_bytes":[)", R"("cable_bytes":[1,)"},
        {R"("kind":"host")", R"("kind":"switch")"}}) {
    std::string changed = text;
    const std::size_t at = changed.find(what);
    ASSERT_NE(at, std::string::npos) << what;
    changed.replace(at, std::string(what).size(), by);
    EXPECT_FALSE(is_read(changed)) << by;
  }
  for (std::size_t length = 0; length < text.size() - 2; length += 101) {
    EXPECT_FALSE(is_read(text.substr(0, length))) << length;
  }
  EXPECT_TRUE(is_read(text));
}

}  // namespace
}  // namespace trireme
