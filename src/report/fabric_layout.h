// Where everything is in a picture of a fabric.
#pragma once

#include <algorithm>
#include <cstddef>
#include <map>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/report/fabric_svg.h"
#include "trireme/topology/fabric_summary.h"

namespace trireme {

// Units of the picture.
inline constexpr double kFabricMargin = 12, kFabricHead = 64;
inline constexpr double kBoxWidth = 130, kBoxHeight = 20;
inline constexpr double kHostsWidth = 600;  // of the part with the hosts
inline constexpr double kCell = 10;         // of a rank, in each dimension

// A switch, or several.
struct FabricBox {
  std::string name, title;
  int level = 0;  // kJoined: it is part of another box, and not drawn
  std::vector<int> switches = {};
  double y = 0.0;
};

// Hosts that share leaf switches.
struct FabricRow {
  std::vector<int> hosts = {};
  std::vector<std::size_t> boxes = {};  // of its leaf switches
  bool has_ranks = false;
  double y = 0.0, height = 0.0;
};

// The cables between two boxes, or of a host.
struct FabricBundle {
  int cables = 0;
  double bytes_per_second = 0.0, bytes = 0.0, seconds = 0.0;
  std::set<std::string_view> sources = {};

  void add(const Cable& cable, double carried);
  // "2 cables, 200 Gbit/s each way, from ibnetdiscover; 3 MB a step, 1.2 ms"
  std::string text(bool with_load) const;
};

// A dimension of the grid with several indices.
struct FabricDimension {
  const char* name;
  int number;  // in kGridDimensions
  Axes axes;
  int size;

  double part(int index) const { return size > 1 ? static_cast<double>(index) / (size - 1) : 1; }
};

// Switches stand in columns by level, from the left to the right down to the hosts, which are in
// rows. Refers to the fabric and the drawing.
class FabricLayout {
 public:
  static constexpr int kJoined = -1;

  FabricLayout(const Fabric& fabric, const FabricDrawing& drawing);

  double width() const { return x_of_hosts() + kHostsWidth + kFabricMargin; }
  double height() const { return height_; }
  double x_of(int level) const { return kFabricMargin + (switch_levels() - level) * kColumn; }
  double x_of_hosts() const { return x_of(0); }
  double host_width() const;
  double host_height(const FabricRow& row) const;
  int hosts_in_line() const;
  // If not, a text stands for the hosts of a row.
  bool each_host() const;
  // Whether one box stands for all switches of a level.
  bool each_level() const { return each_level_; }

  const FabricVertex& vertex(int i) const {
    return fabric_.vertices()[static_cast<std::size_t>(i)];
  }
  const std::vector<FabricDimension>& dimensions() const { return dimensions_; }
  const std::vector<FabricRow>& rows() const { return rows_; }
  const std::vector<FabricBox>& boxes() const { return boxes_; }
  // The bundles by their boxes, the higher one first.
  const std::map<std::pair<std::size_t, std::size_t>, FabricBundle>& bundles() const {
    return bundles_;
  }
  // The places of the grid on a host, and its cables. nullptr: none.
  const std::vector<int>* places(int host) const;
  const FabricBundle* ways_of(int host) const;
  // The longest time for which a step loads a link.
  double longest_load() const { return worst_; }

 private:
  static constexpr double kColumn = 210;
  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);

  int switch_levels() const { return std::max(0, static_cast<int>(levels_.size()) - 1); }
  void find_dimensions();
  void find_rows();
  // A box for each switch, or for each level where there are many of them.
  void find_boxes();
  // Many switches with cables to the same others become one box.
  void join_twins();
  void find_bundles();
  void place();
  // Spreads the boxes of a level, each as near as can be to the middle of those below it.
  void place_level(int level);

  const Fabric& fabric_;
  const FabricDrawing& drawing_;
  const std::vector<FabricLevel> levels_;
  std::vector<FabricDimension> dimensions_;
  std::map<int, std::vector<int>> places_;  // of each host
  std::vector<FabricRow> rows_;
  std::map<int, std::size_t> row_of_vertex_;
  std::vector<FabricBox> boxes_;
  std::vector<std::size_t> box_of_;  // of each vertex
  std::map<std::pair<std::size_t, std::size_t>, FabricBundle> bundles_;
  std::map<int, FabricBundle> ways_of_;  // of each host
  bool each_level_ = false;
  int hosts_ = 0;
  double worst_ = 0.0, height_ = 0.0;
};

}  // namespace trireme
