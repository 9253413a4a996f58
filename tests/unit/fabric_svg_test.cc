// The picture of a fabric: what each link carries in a step.
#include "trireme/train/fabric_svg.h"

#include <string>

#include <gtest/gtest.h>

namespace trireme {
namespace {

TEST(FabricSvg, TheLoadOfLinks) {
  const Fabric fabric = make_fat_tree({{2, 10e9}, {2, 0.0}}, 10e9);  // four hosts, two leaves
  FabricDrawing drawing{"Load"};
  drawing.cable_bytes.assign(fabric.cables().size(), 1e6);
  drawing.cable_bytes.back() = 4e6;  // the way up of the second leaf
  const std::string svg = svg_of_fabric(fabric, drawing);
  EXPECT_NE(svg.find("a step's load of links: the longest takes 0.4 ms"), std::string::npos) << svg;
  // The colours: the worst link, and one that carries less than half of it.
  EXPECT_NE(svg.find("class=\"s1\"><title>switch2.0 - switch1.1: 1 cable, 80 Gbit/s each way, from "
                     "made up; 4.0 MB a step</title>"),
            std::string::npos)
      << svg;
  EXPECT_NE(svg.find("class=\"s2\"><title>switch2.0 - switch1.0: 1 cable, 80 Gbit/s each way, from "
                     "made up; 1.0 MB a step</title>"),
            std::string::npos)
      << svg;
  EXPECT_EQ(svg_of_fabric(fabric, {"No load"}).find("a step"), std::string::npos);
}

TEST(FabricSvg, NothingIsAPictureToo) {
  EXPECT_NE(svg_of_fabric(Fabric(FabricSource::kMadeUp), {"Nothing"}).find("</svg>"),
            std::string::npos);
}

}  // namespace
}  // namespace trireme
