// Plots as inline SVG. Colours come from the page's style sheet (html_page.cc), by number; dashes
// and the shapes of marks tell lines apart without them. What is not finite is left out.
#pragma once

#include <limits>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace trireme {

// For text in HTML and SVG, also inside of an attribute.
std::string escape_html(std::string_view text);

struct PlotMark {
  double x = 0.0, y = 0.0;
  std::string title;        // shown when the pointer rests there
  double half_width = 0.0;  // drawn as a bar from y - half_width to y + half_width
};

struct PlotLine {
  std::string name;  // in the legend; empty: not there
  std::vector<PlotMark> marks = {};
  int colour = 0;
  bool dashed = false;
  bool dots = true;  // otherwise the marks are invisible, but have their titles
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
  bool from_zero = false;                                    // the y axis
  double y_most = std::numeric_limits<double>::quiet_NaN();  // else from the data
};
std::string svg_of(const Plot& plot);

// Horizontal bars whose parts are shares of 1.
struct ShareBar {
  std::string label;
  std::vector<double> parts;
};
std::string svg_of_shares(const std::string& title, const std::vector<std::string>& names,
                          const std::vector<ShareBar>& bars);

}  // namespace trireme
