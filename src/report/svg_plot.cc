#include "trireme/report/svg_plot.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/text.h"

namespace trireme {
namespace {

constexpr double kWidth = 640, kHeight = 300;
constexpr double kLeft = 64, kRight = 16, kTop = 44, kBottom = 46;
constexpr int kColours = 6;  // in the style sheet

bool drawable(const PlotMark& mark) {
  return std::isfinite(mark.x) && std::isfinite(mark.y);
}

// Maps data to the picture along one axis.
struct PlotAxis {
  double least = 0.0, most = 1.0, from = 0.0, to = 1.0;
  std::vector<double> ticks;

  double at(double value) const { return from + (value - least) / (most - least) * (to - from); }
};

struct Range {
  double least = std::numeric_limits<double>::infinity();
  double most = -std::numeric_limits<double>::infinity();

  void add(double value) {
    if (!std::isfinite(value)) return;
    least = std::min(least, value);
    most = std::max(most, value);
  }
  // Ensures that the range is not empty and its width is not 0.
  void settle() {
    if (least > most) *this = {0.0, 1.0};
    if (most - least < 1e-9 * std::max(std::abs(most), 1e-300)) {
      const double margin = most == 0.0 ? 1.0 : 0.1 * std::abs(most);
      least -= margin;
      most += margin;
    }
  }
};

// Returns the step between about `count` ticks: 1, 2 or 5 times a power of ten.
double round_step(double span, int count) {
  const double rough = span / count;
  const double power = std::pow(10.0, std::floor(std::log10(rough)));
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (factor * power >= rough * 0.999) return factor * power;
  }
  return 10.0 * power;
}

std::vector<double> round_ticks(double least, double most, double step) {
  std::vector<double> ticks;
  for (double i = std::ceil(least / step - 1e-6); i * step <= most + 1e-6 * step; ++i) {
    ticks.push_back(i * step == 0.0 ? 0.0 : i * step);
  }
  return ticks;
}

PlotAxis x_axis(const Plot& plot) {
  Range range;
  for (const PlotLine& line : plot.lines) {
    for (const PlotMark& mark : line.marks) {
      if (drawable(mark)) range.add(mark.x);
    }
  }
  range.settle();
  PlotAxis axis{range.least, range.most, kLeft, kWidth - kRight, plot.x_ticks};
  if (axis.ticks.empty()) {
    axis.ticks = round_ticks(range.least, range.most, round_step(range.most - range.least, 6));
  }
  return axis;
}

PlotAxis y_axis(const Plot& plot) {
  Range range;
  for (const PlotLine& line : plot.lines) {
    for (const PlotMark& mark : line.marks) {
      if (!drawable(mark)) continue;
      const double half = std::isfinite(mark.half_width) ? mark.half_width : 0.0;
      // The error bar of a value that cannot be negative does not extend the axis below 0.
      range.add(plot.from_zero && mark.y >= 0.0 ? std::max(0.0, mark.y - half) : mark.y - half);
      range.add(mark.y + half);
    }
  }
  if (plot.from_zero) range.add(0.0);
  range.add(plot.y_most);
  range.settle();
  const double step = round_step(range.most - range.least, 5);
  range.least = std::floor(range.least / step + 1e-9) * step;
  range.most = std::ceil(range.most / step - 1e-9) * step;
  if (std::isfinite(plot.y_most)) range.most = plot.y_most;
  return {range.least, range.most, kHeight - kBottom, kTop,
          round_ticks(range.least, range.most, step)};
}

std::string text_at(double x, double y, std::string_view css, std::string_view text) {
  return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", x, y, css,
                     escape_html(text));
}

std::string title_of(const std::string& text) {
  return text.empty() ? "" : fmt::format("<title>{}</title>", escape_html(text));
}

std::string opening(double height, const std::string& title) {
  return fmt::format(
      "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
      "aria-label=\"{}\">\n{}",
      kWidth, height, escape_html(title), text_at(kLeft, 16, "heading", title));
}

std::string axes(const Plot& plot, const PlotAxis& x, const PlotAxis& y) {
  std::string svg;
  for (const double tick : y.ticks) {
    svg += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"grid\"/>\n", x.from,
        y.at(tick), x.to, y.at(tick));
    svg += text_at(kLeft - 6, y.at(tick) + 4, "right", short_number(tick));
  }
  for (const double tick : x.ticks) {
    if (tick < x.least || tick > x.most) continue;
    svg += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"axis\"/>\n",
        x.at(tick), y.from, x.at(tick), y.from + 5);
    svg += text_at(x.at(tick), y.from + 18, "middle", short_number(tick));
  }
  svg += fmt::format("<path d=\"M{:.1f} {:.1f}V{:.1f}H{:.1f}\" class=\"axis\"/>\n", x.from, y.to,
                     y.from, x.to);
  svg += text_at((x.from + x.to) / 2, kHeight - 8, "middle", plot.x_label);
  return svg + fmt::format(
                   "<text transform=\"translate(14 {:.1f}) rotate(-90)\" "
                   "class=\"middle\">{}</text>\n",
                   (y.from + y.to) / 2, escape_html(plot.y_label));
}

std::string dot(double x, double y, int colour, const std::string& title) {
  switch (colour % 3) {
    case 1:
      return fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"7\" height=\"7\" class=\"f{}\">{}</rect>\n",
          x - 3.5, y - 3.5, colour % kColours, title);
    case 2:
      return fmt::format("<path d=\"M{:.1f} {:.1f}l4.5 8h-9z\" class=\"f{}\">{}</path>\n", x, y - 5,
                         colour % kColours, title);
    default:
      return fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"4\" class=\"f{}\">{}</circle>\n",
                         x, y, colour % kColours, title);
  }
}

std::string linked(const PlotLine& line, const std::string& svg) {
  if (line.link.empty()) return svg;
  return fmt::format("<a href=\"{}\">{}</a>\n", escape_html(line.link), svg);
}

std::string line_of(const PlotLine& line, const PlotAxis& x, const PlotAxis& y) {
  std::string path, marks;
  const bool dots = line.dots || std::ranges::count_if(line.marks, drawable) == 1;
  for (const PlotMark& mark : line.marks) {
    if (!drawable(mark)) continue;
    const double px = x.at(mark.x), py = std::clamp(y.at(mark.y), y.to - 2, y.from + 2);
    path += fmt::format("{}{:.1f} {:.1f}", path.empty() ? "M" : "L", px, py);
    if (std::isfinite(mark.half_width) && mark.half_width > 0.0) {
      const double top = std::max(y.at(mark.y + mark.half_width), y.to);
      const double bottom = std::min(y.at(mark.y - mark.half_width), y.from);
      marks += fmt::format("<path d=\"M{:.1f} {:.1f}h8m-4 0V{:.1f}m-4 0h8\" class=\"s{} thin\"/>\n",
                           px - 4, top, bottom, line.colour % kColours);
    }
    if (dots) {
      marks += dot(px, py, line.colour, title_of(mark.title));
    } else if (!mark.title.empty()) {
      marks +=
          fmt::format("<circle cx=\"{:.1f}\" cy=\"{:.1f}\" r=\"5\" class=\"hit\">{}</circle>\n", px,
                      py, title_of(mark.title));
    }
  }
  if (path.empty()) return "";
  return linked(line, fmt::format("<path d=\"{}\" class=\"s{}{}\"/>\n", path,
                                  line.colour % kColours, line.dashed ? " dashed" : "") +
                          marks);
}

struct Legend {
  std::string svg;
  double more = 0.0;  // the height of its lines below the first
};

Legend legend_of(const std::vector<PlotLine>& lines) {
  constexpr double kLine = 18;
  Legend legend;
  double at = kLeft;
  for (const PlotLine& line : lines) {
    if (line.name.empty()) continue;
    const double width = 27 + 7.0 * static_cast<double>(line.name.size());
    if (at > kLeft && at + width > kWidth) {
      at = kLeft;
      legend.more += kLine;
    }
    const double y = 31 + legend.more;
    std::string entry = fmt::format("<path d=\"M{:.1f} {:.0f}h22\" class=\"s{}{}\"/>\n", at, y,
                                    line.colour % kColours, line.dashed ? " dashed" : "");
    if (line.dots) entry += dot(at + 11, y, line.colour, "");
    entry += text_at(at + 27, y + 4, "left", line.name);
    legend.svg += linked(line, entry);
    at += width + 14;
  }
  return legend;
}

}  // namespace

std::string escape_html(std::string_view text) {
  std::string result;
  for (const char c : text) {
    switch (c) {
      case '&':
        result += "&amp;";
        break;
      case '<':
        result += "&lt;";
        break;
      case '>':
        result += "&gt;";
        break;
      case '"':
        result += "&quot;";
        break;
      default:
        // Other control characters are not allowed in a page at all.
        if (static_cast<unsigned char>(c) >= 0x20 || c == '\n') result += c;
    }
  }
  return result;
}

std::string svg_of(const Plot& plot) {
  const PlotAxis x = x_axis(plot), y = y_axis(plot);
  std::string svg = axes(plot, x, y);
  for (const PlotEvent& event : plot.events) {
    if (!std::isfinite(event.x) || event.x < x.least || event.x > x.most) continue;
    svg += fmt::format("<path d=\"M{:.1f} {:.1f}V{:.1f}\" class=\"s{} event\">{}</path>\n",
                       x.at(event.x), y.to, y.from, event.colour % kColours, title_of(event.title));
  }
  for (const PlotLine& line : plot.lines) svg += line_of(line, x, y);
  const Legend legend = legend_of(plot.lines);
  if (legend.more > 0.0) {
    svg = fmt::format("<g transform=\"translate(0 {:.0f})\">\n{}</g>\n", legend.more, svg);
  }
  return opening(kHeight + legend.more, plot.title) + svg + legend.svg + "</svg>\n";
}

std::string svg_of_shares(const std::string& title, const std::vector<std::string>& names,
                          const std::vector<ShareBar>& bars) {
  constexpr double kBar = 22, kGap = 8, kLabels = 100, kLegendLine = 18;
  std::string legend;
  double at = kLeft, line = 0.0;
  for (std::size_t i = 0; i < names.size(); ++i) {
    const double width = 17 + 7.0 * static_cast<double>(names[i].size());
    if (at > kLeft && at + width > kWidth) {
      at = kLeft;
      line += kLegendLine;
    }
    legend +=
        fmt::format("<rect x=\"{:.1f}\" y=\"{:.0f}\" width=\"12\" height=\"12\" class=\"f{}\"/>\n",
                    at, 25 + line, i % kColours);
    legend += text_at(at + 17, 35 + line, "left", names[i]);
    at += width + 16;
  }
  double top = kTop + line;
  const double height = top + static_cast<double>(bars.size()) * (kBar + kGap) + 4;
  std::string svg = opening(height, title) + legend;
  for (const ShareBar& bar : bars) {
    svg += text_at(kLabels - 8, top + 15, "right", bar.label);
    double x = kLabels;
    for (std::size_t i = 0; i < bar.parts.size() && i < names.size(); ++i) {
      if (!std::isfinite(bar.parts[i])) continue;
      const double width = bar.parts[i] * (kWidth - kRight - kLabels);
      const std::string told = fmt::format("{:.1f} %", 100 * bar.parts[i]);
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" class=\"f{}\">"
          "{}</rect>\n",
          x, top, width, kBar, i % kColours,
          title_of(fmt::format("{}, {}: {}", bar.label, names[i], told)));
      if (width > 48) svg += text_at(x + width / 2, top + 15, "inside", told);
      x += width;
    }
    top += kBar + kGap;
  }
  return svg + "</svg>\n";
}

std::string svg_of(const LanePlot& plot) {
  constexpr double kLane = 26, kBar = 14, kLabels = 110, kLegendLine = 18, kAxis = 42;
  constexpr std::size_t kLongestLabel = 14;
  std::string svg;
  double at = kLeft, line = 0.0;
  for (const LaneMeaning& meaning : plot.legend) {
    const double width = 17 + 7.0 * static_cast<double>(meaning.name.size());
    if (at > kLeft && at + width > kWidth) {
      at = kLeft;
      line += kLegendLine;
    }
    svg += meaning.is_mark
               ? dot(at + 6, 31 + line, meaning.colour, "")
               : fmt::format(
                     "<rect x=\"{:.1f}\" y=\"{:.0f}\" width=\"12\" height=\"12\" class=\"f{}\"/>\n",
                     at, 25 + line, meaning.colour % kColours);
    svg += text_at(at + 17, 35 + line, "left", meaning.name);
    at += width + 16;
  }
  double top = kTop + line;
  const double bottom = top + kLane * static_cast<double>(plot.lanes.size());
  const double most = plot.most > 0.0 && std::isfinite(plot.most) ? plot.most : 1.0;
  const PlotAxis x{0.0, most, kLabels, kWidth - kRight,
                   round_ticks(0.0, most, round_step(most, 6))};
  for (const double tick : x.ticks) {
    svg += fmt::format(
        "<line x1=\"{:.1f}\" y1=\"{:.1f}\" x2=\"{:.1f}\" y2=\"{:.1f}\" class=\"grid\"/>\n",
        x.at(tick), top, x.at(tick), bottom);
    svg += text_at(x.at(tick), bottom + 16, "middle", short_number(tick));
  }
  svg += text_at((x.from + x.to) / 2, bottom + 34, "middle", plot.x_label);
  for (const Lane& lane : plot.lanes) {
    const double middle = top + kLane / 2;
    svg +=
        text_at(kLabels - 8, middle + 4, "right",
                lane.label.size() > kLongestLabel ? lane.label.substr(0, kLongestLabel - 2) + ".."
                                                  : lane.label);
    for (const LaneSpan& span : lane.spans) {
      const double from = x.at(std::clamp(span.from, 0.0, most));
      const double to = x.at(std::clamp(span.to, 0.0, most));
      svg += fmt::format(
          "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" class=\"f{}\">"
          "{}</rect>\n",
          from, middle - kBar / 2, std::max(to - from, 0.5), kBar, span.colour % kColours,
          title_of(span.title));
    }
    for (const LaneMark& mark : lane.marks) {
      svg += dot(x.at(std::clamp(mark.x, 0.0, most)), middle, mark.colour, title_of(mark.title));
    }
    top += kLane;
  }
  return opening(bottom + kAxis, plot.title) + svg + "</svg>\n";
}

}  // namespace trireme
