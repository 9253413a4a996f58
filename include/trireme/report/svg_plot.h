// Plots as inline SVG. Colours have numbers and come from the page's style sheet (html_page.cc).
// Dashes and the shapes of marks distinguish lines without colours. Values that are not finite are
// left out.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

// Escapes text for HTML and SVG, also inside an attribute.
std::string escape_html(std::string_view text);

struct PlotMark {
  double x = 0.0, y = 0.0;
  std::string title;        // shown when the pointer rests on the mark
  double half_width = 0.0;  // an error bar from y - half_width to y + half_width; 0: no bar
};

struct PlotLine {
  std::string name;  // in the legend, which has as many lines as it takes; empty: no entry
  std::vector<PlotMark> marks = {};
  int colour = 0;
  bool dashed = false;
  // false: the marks are invisible, but still show their titles; a mark that is alone is seen
  bool dots = true;
  std::string link = {};  // where a click on the line or on its name leads; empty: nowhere
};

struct PlotEvent {  // a vertical line
  double x = 0.0;
  std::string title;
  int colour = 0;
};

struct Plot {
  std::string title, x_label, y_label;
  std::vector<PlotLine> lines = {};
  std::vector<PlotEvent> events = {};
  std::vector<double> x_ticks = {};                          // empty: round numbers
  bool from_zero = false;                                    // the y axis includes 0
  double y_most = std::numeric_limits<double>::quiet_NaN();  // NaN: from the data
};
std::string svg_of(const Plot& plot);

// What happened to whom over time: spans and marks in a lane for each.
struct LaneSpan {
  double from = 0.0, to = 0.0;
  int colour = 0;
  std::string title;
};
struct LaneMark {
  double x = 0.0;
  int colour = 0;  // also says which shape
  std::string title;
};
struct Lane {
  std::string label;
  std::vector<LaneSpan> spans;  // later ones lie above earlier ones
  std::vector<LaneMark> marks;
};
struct LaneMeaning {
  std::string name;
  int colour = 0;
  bool is_mark = false;
};
struct LanePlot {
  std::string title, x_label;
  std::vector<LaneMeaning> legend;
  std::vector<Lane> lanes;
  double most = 1.0;  // of x, which begins at 0
};
std::string svg_of(const LanePlot& plot);

// Horizontal bars whose parts are shares of 1.
struct ShareBar {
  std::string label;
  std::vector<double> parts;
};
std::string svg_of_shares(const std::string& title, const std::vector<std::string>& names,
                          const std::vector<ShareBar>& bars);

}  // namespace trireme
