// A picture of a fabric.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/grid_shape.h"
#include "trireme/topology/fabric.h"

namespace trireme {

struct FabricDrawing {
  std::string title;
  // The host, a vertex, of the rank at each place in the grid. Empty: no ranks.
  std::vector<int> host_of = {};
  GridShape grid = {};
  // Bytes that each cable carries in a step, in the direction that carries more. Empty: not known.
  std::vector<double> cable_bytes = {};
};

// Returns inline SVG in the style of svg_plot.h. The highest switches are on the left, hosts on the
// right, a row for each group of hosts that share leaf switches. Each rank is a column of cells of
// the colours of its indices in the grid's dimensions. With more than 400 hosts the hosts of a row
// are one text, with more than 64 rows each level is one box.
std::string svg_of_fabric(const Fabric& fabric, const FabricDrawing& drawing);

}  // namespace trireme
