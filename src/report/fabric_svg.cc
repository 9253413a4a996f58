#include "trireme/report/fabric_svg.h"

#include <algorithm>
#include <set>

#include <fmt/format.h>

#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/report/svg_plot.h"

#include "fabric_layout.h"

namespace trireme {
namespace {

constexpr double kLetter = 6.6;  // about the width of one
// Colours of the style sheet.
constexpr int kLoadColour = 1;

std::string short_text(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 2) + "..";
}

int colour_of(const FabricDimension& dimension) {
  return dimension.number < kLoadColour ? dimension.number : dimension.number + 1;
}

class FabricPicture {
 public:
  FabricPicture(const Fabric& fabric, const FabricDrawing& drawing)
      : drawing_(drawing), layout_(fabric, drawing) {}

  std::string svg() const {
    std::string text = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
        "aria-label=\"{}\">\n",
        layout_.width(), layout_.height(), escape_html(drawing_.title));
    text += text_at(kFabricMargin, 18, "heading", drawing_.title);
    text += legend();
    for (const auto& [ends, bundle] : layout_.bundles()) text += line(ends, bundle);
    for (const FabricBox& box : layout_.boxes()) {
      if (box.level != FabricLayout::kJoined) text += box_text(box);
    }
    for (const FabricRow& row : layout_.rows()) text += row_text(row);
    return text + "</svg>\n";
  }

 private:
  bool with_load() const { return !drawing_.cable_bytes.empty(); }

  static std::string text_at(double x, double y, std::string_view css, const std::string& text) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", x, y, css,
                       escape_html(shown(text)));
  }
  static std::string title_of(const std::string& text) {
    return fmt::format("<title>{}</title>", escape_html(shown(text)));
  }

  // The share of the load of the worst link, which a step waits for.
  double share_of(double seconds) const {
    return layout_.longest_load() > 0.0 ? seconds / layout_.longest_load() : 0.0;
  }
  // How deep a colour is for a part of 1.
  static double depth(double part) { return 0.2 + 0.8 * part; }

  std::string line_style(double seconds) const {
    const double share = share_of(seconds);
    if (!with_load() || share <= 0.0) return "class=\"axis\"";
    return fmt::format("class=\"s{}\" stroke-opacity=\"{:.2f}\" style=\"stroke-width:{:.1f}\"",
                       kLoadColour, depth(share), 1 + 3 * share);
  }
  std::string bar(double x, double y, double height, double seconds,
                  const std::string& title) const {
    const double share = share_of(seconds);
    const bool loaded = with_load() && share > 0.0;
    return fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"5\" height=\"{:.0f}\" {}>{}</rect>\n", x, y,
        height,
        loaded ? fmt::format("class=\"f{}\" fill-opacity=\"{:.2f}\"", kLoadColour, depth(share))
               : "class=\"host\"",
        title_of(title));
  }

  std::string line(const std::pair<std::size_t, std::size_t>& ends,
                   const FabricBundle& bundle) const {
    const FabricBox &high = layout_.boxes()[ends.first], &low = layout_.boxes()[ends.second];
    const double x = layout_.x_of(high.level) + kBoxWidth, y = high.y + kBoxHeight / 2;
    const double to = high.level == low.level ? x + 12 : layout_.x_of(low.level);
    return fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" {}><title>{}</title></path>\n", x,
                       y, to, low.y + kBoxHeight / 2, line_style(bundle.seconds),
                       escape_html(shown(fmt::format("{} - {}: {}", high.name, low.name,
                                                     bundle.text(with_load())))));
  }

  std::string box_text(const FabricBox& box) const {
    return fmt::format(
               "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"3\" "
               "class=\"box\">{}</rect>\n",
               layout_.x_of(box.level), box.y, kBoxWidth, kBoxHeight, title_of(box.title)) +
           text_at(layout_.x_of(box.level) + kBoxWidth / 2, box.y + 14, "middle",
                   short_text(box.name, 20));
  }

  std::string row_text(const FabricRow& row) const {
    std::string text;
    for (const std::size_t box : row.boxes) {
      const double y = layout_.boxes()[box].y + kBoxHeight / 2;
      text += fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"axis\"/>\n",
                          layout_.x_of(1) + kBoxWidth, y, layout_.x_of_hosts() - 8);
    }
    text += fmt::format("<path d=\"M{:.1f} {:.1f}V{:.1f}\" class=\"axis\"/>\n",
                        layout_.x_of_hosts() - 8, row.y, row.y + row.height);
    if (!layout_.each_host()) return text + summary_of(row);
    for (std::size_t i = 0; i < row.hosts.size(); ++i) {
      const auto in_line = static_cast<std::size_t>(layout_.hosts_in_line());
      text +=
          host_text(row.hosts[i],
                    layout_.x_of_hosts() + static_cast<double>(i % in_line) * layout_.host_width(),
                    row.y + static_cast<double>(i / in_line) * layout_.host_height(row),
                    layout_.host_height(row) - 4);
    }
    return text;
  }

  // One line for the hosts of a row, with the longest load of their cables.
  std::string summary_of(const FabricRow& row) const {
    std::vector<std::string> names;
    double seconds = 0.0;
    for (const int host : row.hosts) {
      names.push_back(layout_.vertex(host).name);
      if (const auto* ways = layout_.ways_of(host)) seconds = std::max(seconds, ways->seconds);
    }
    std::string list = fmt::format("{} hosts", row.hosts.size());
    if (!layout_.each_level()) list += ": " + short_text(node_list(names), 40);
    const std::string title =
        with_load() ? fmt::format("the busiest of their cables: {} a step", time_text(seconds))
                    : "their cables";
    return bar(layout_.x_of_hosts(), row.y, row.height, seconds, title) +
           text_at(layout_.x_of_hosts() + 12, row.y + 14, "left", list + places_of(row));
  }

  // "; data 0-3, tensor 0-7"
  std::string places_of(const FabricRow& row) const {
    std::string text;
    for (const FabricDimension& dimension : layout_.dimensions()) {
      std::set<int> indices;
      for (const int host : row.hosts) {
        const std::vector<int>* places = layout_.places(host);
        if (places == nullptr) continue;
        for (const int place : *places) indices.insert(drawing_.grid.index(place, dimension.axes));
      }
      if (indices.empty()) continue;
      const int first = *indices.begin(), last = *indices.rbegin();
      const bool run = static_cast<int>(indices.size()) == last - first + 1;
      text += fmt::format("{} {} {}", text.empty() ? ";" : ",", dimension.name,
                          !run            ? fmt::format("{} of {}", indices.size(), dimension.size)
                          : first == last ? std::to_string(first)
                                          : fmt::format("{}-{}", first, last));
    }
    return text;
  }

  std::string host_text(int host, double x, double y, double height) const {
    const double width = layout_.host_width() - 6;
    const auto most = static_cast<std::size_t>((width - 8) / kLetter);
    const FabricBundle* ways = layout_.ways_of(host);
    const std::string told = ways != nullptr ? ways->text(with_load()) : "no cable";
    std::string text = fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" class=\"host\"/>\n", x,
        y, width, height);
    text += bar(x, y, height, ways != nullptr ? ways->seconds : 0.0,
                fmt::format("{}: {}", layout_.vertex(host).name, told));
    text += text_at(x + 9, y + 13, "left", short_text(layout_.vertex(host).name, most));
    const std::vector<int>* places = layout_.places(host);
    if (places == nullptr) return text;
    for (std::size_t i = 0; i < places->size(); ++i) {
      const int place = (*places)[i];
      for (std::size_t d = 0; d < layout_.dimensions().size(); ++d) {
        const FabricDimension& dimension = layout_.dimensions()[d];
        const int index = drawing_.grid.index(place, dimension.axes);
        text +=
            cell(x + 9 + static_cast<double>(i) * kCell, y + 17 + static_cast<double>(d) * kCell,
                 dimension, index, fmt::format("place {}: {} {}", place, dimension.name, index));
      }
    }
    return text;
  }

  static std::string cell(double x, double y, const FabricDimension& dimension, int index,
                          const std::string& title) {
    return fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.0f}\" height=\"{:.0f}\" class=\"f{}\" "
        "fill-opacity=\"{:.2f}\">{}</rect>\n",
        x, y, kCell - 1, kCell - 1, colour_of(dimension), depth(dimension.part(index)),
        title_of(title));
  }

  // What the cells of a rank mean, from the top, and the colour of loads.
  std::string legend() const {
    constexpr int kSamples = 6;
    double x = kFabricMargin;
    std::string text;
    const auto say = [&](const std::string& words) {
      text += text_at(x, 40, "left", words);
      x += static_cast<double>(words.size()) * kLetter + 6;
    };
    for (const FabricDimension& dimension : layout_.dimensions()) {
      say(fmt::format("{} 0", dimension.name));
      const int samples = std::min(dimension.size, kSamples);
      for (int i = 0; i < samples; ++i) {
        const int index = samples > 1 ? i * (dimension.size - 1) / (samples - 1) : 0;
        text += cell(x, 31, dimension, index, fmt::format("{} {}", dimension.name, index));
        x += kCell;
      }
      x += 4;
      say(std::to_string(dimension.size - 1));
      x += 16;
    }
    if (!with_load()) return text;
    if (layout_.longest_load() <= 0.0) {
      say("nothing crosses a link in a step");
      return text;
    }
    say("a step's load of links: 0");
    for (int i = 0; i < kSamples; ++i) {
      const double share = static_cast<double>(i) / (kSamples - 1);
      text += fmt::format("<path d=\"M{:.1f} 36h14\" {}/>\n", x,
                          line_style(share * layout_.longest_load()));
      x += 14;
    }
    x += 6;
    say(time_text(layout_.longest_load()));
    return text;
  }

  const FabricDrawing& drawing_;
  FabricLayout layout_;
};

}  // namespace

std::string svg_of_fabric(const Fabric& fabric, const FabricDrawing& drawing) {
  return FabricPicture(fabric, drawing).svg();
}

}  // namespace trireme
