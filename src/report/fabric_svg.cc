#include "trireme/report/fabric_svg.h"

#include <algorithm>
#include <map>
#include <numeric>
#include <set>

#include <fmt/format.h>

#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"
#include "trireme/base/text.h"
#include "trireme/report/svg_plot.h"
#include "trireme/topology/fabric_summary.h"
#include "trireme/topology/network.h"

namespace trireme {
namespace {

constexpr std::size_t kMostHosts = 400, kMostRows = 64;
constexpr double kMargin = 12, kHead = 64;
constexpr double kBoxWidth = 130, kBoxHeight = 20, kBoxGap = 6, kColumn = 210;
constexpr double kHosts = 600;  // width of the part with the hosts
constexpr double kCell = 10;
constexpr double kLetter = 6.6;                  // about the width of one
constexpr int kLoadColour = 1;                   // of the style sheet
constexpr int kColourOfDimension[] = {0, 2, 3};  // the same; data, pipeline, tensor
constexpr std::size_t kFewTwins = 4;             // switches with the same cables, drawn one by one

std::string short_text(const std::string& text, std::size_t most) {
  return text.size() <= most ? text : text.substr(0, most - 2) + "..";
}

std::string capacity_text(double bytes_per_second) {
  return bytes_per_second > 0.0 ? fmt::format("{} Gbit/s", short_number(bytes_per_second * 8 / 1e9))
                                : "unknown rate";
}

std::string busy_text(double seconds) {
  return seconds > 0.0 && seconds < 1e-4 ? fmt::format("{:.2g} us", 1e6 * seconds)
                                         : time_text(seconds);
}

struct Box {
  std::string name, title;
  int level = 0;
  std::vector<int> switches = {};
  double y = 0.0;
};

// Hosts that share leaf switches.
struct Row {
  std::vector<int> hosts = {};
  std::vector<std::size_t> boxes = {};  // of its leaf switches
  bool has_ranks = false;
  double y = 0.0, height = 0.0;
};

// The cables between two boxes, or of a host.
struct Bundle {
  int cables = 0;
  double bytes_per_second = 0.0, bytes = 0.0, seconds = 0.0;
  std::set<std::string_view> sources = {};

  void add(const Cable& cable, double carried) {
    ++cables;
    bytes_per_second += cable.bytes_per_second;
    bytes += carried;
    const double rate = cable.bytes_per_second > 0.0
                            ? cable.bytes_per_second
                            : TreeNetwork::Assumed().cable_bytes_per_second;
    seconds = std::max(seconds, carried / rate);
    sources.insert(name_of(cable.from));
    sources.insert(name_of(cable.rate_from));
  }
  std::string text(bool with_load) const {
    std::string result = fmt::format("{} {}, {} each way", cables, cables == 1 ? "cable" : "cables",
                                     capacity_text(bytes_per_second));
    const char* separator = ", from ";
    for (const std::string_view source : sources) {
      result += separator + std::string(source);
      separator = " and ";
    }
    if (with_load) {
      result += fmt::format("; {} a step, {}", size_text(static_cast<std::uint64_t>(bytes)),
                            busy_text(seconds));
    }
    return result;
  }
};

class Picture {
 public:
  Picture(const Fabric& fabric, const FabricDrawing& drawing)
      : fabric_(fabric), drawing_(drawing), levels_(levels_of(fabric)) {
    for (std::size_t i = 0; i < drawing.host_of.size(); ++i) {
      places_[drawing.host_of[i]].push_back(static_cast<int>(i));
    }
    find_dimensions();
    find_rows();
    find_boxes();
    join_twins();
    find_bundles();
    place();
  }

  std::string svg() const {
    const double width = 2 * kMargin + static_cast<double>(switch_levels()) * kColumn + kHosts;
    std::string text = fmt::format(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {:.0f} {:.0f}\" role=\"img\" "
        "aria-label=\"{}\">\n",
        width, height_, escape_html(drawing_.title));
    text += text_at(kMargin, 18, "heading", drawing_.title);
    text += legend();
    for (const auto& [ends, bundle] : bundles_) text += line(ends, bundle);
    for (const Box& box : boxes_) {
      if (box.level != kJoined) text += box_text(box);
    }
    for (const Row& row : rows_) text += row_text(row);
    return text + "</svg>\n";
  }

 private:
  struct Dimension {
    const char* name;
    int colour, stride, size;

    int index(int place) const { return place / stride % size; }
    double part(int index) const { return size > 1 ? static_cast<double>(index) / (size - 1) : 1; }
  };

  int switch_levels() const { return std::max(0, static_cast<int>(levels_.size()) - 1); }
  const FabricVertex& vertex(int i) const {
    return fabric_.vertices()[static_cast<std::size_t>(i)];
  }
  double x_of(int level) const { return kMargin + (switch_levels() - level) * kColumn; }
  double x_of_hosts() const { return x_of(0); }
  bool with_load() const { return !drawing_.cable_bytes.empty(); }
  bool each_host() const { return static_cast<std::size_t>(hosts_) <= kMostHosts; }

  static std::string text_at(double x, double y, std::string_view css, const std::string& text) {
    return fmt::format("<text x=\"{:.1f}\" y=\"{:.1f}\" class=\"{}\">{}</text>\n", x, y, css,
                       escape_html(shown(text)));
  }
  static std::string title_of(const std::string& text) {
    return fmt::format("<title>{}</title>", escape_html(shown(text)));
  }

  void find_dimensions() {
    const GridShape& grid = drawing_.grid;
    if (drawing_.host_of.empty()) return;
    const auto add = [&](const char* name, int colour, int stride, int size) {
      if (size > 1) dimensions_.push_back({name, kColourOfDimension[colour], stride, size});
    };
    add("data", 0, grid.pipeline * grid.tensor, grid.data);
    add("pipeline", 1, grid.tensor, grid.pipeline);
    add("tensor", 2, 1, grid.tensor);
    if (dimensions_.empty()) dimensions_.push_back({"data", kColourOfDimension[0], 1, 1});
  }

  void find_rows() {
    const std::vector<int> blocks = blocks_of(fabric_, 1);
    std::map<int, std::size_t> row_of;  // of each block
    for (const int host : hosts_by_name(fabric_)) {
      const int block = blocks[static_cast<std::size_t>(host)];
      const auto [row, is_new] = row_of.emplace(block, rows_.size());
      if (is_new) rows_.emplace_back();
      rows_[row->second].hosts.push_back(host);
      rows_[row->second].has_ranks |= places_.contains(host);
      ++hosts_;
    }
    each_level_ = rows_.size() > kMostRows;
    if (each_level_) {
      for (std::size_t i = 1; i < rows_.size(); ++i) {
        rows_[0].hosts.insert(rows_[0].hosts.end(), rows_[i].hosts.begin(), rows_[i].hosts.end());
        rows_[0].has_ranks |= rows_[i].has_ranks;
      }
      rows_.resize(1);
      for (auto& [block, row] : row_of) row = 0;
    }
    for (std::size_t i = 0; i < blocks.size(); ++i) {
      if (blocks[i] >= 0) row_of_vertex_[static_cast<int>(i)] = row_of.at(blocks[i]);
    }
  }

  // A box for each switch, or for each level where there are many of them.
  void find_boxes() {
    std::map<int, std::size_t> of_level;
    const auto& vertices = fabric_.vertices();
    box_of_.assign(vertices.size(), kNone);
    for (std::size_t i = 0; i < vertices.size(); ++i) {
      const int level = vertices[i].level;
      if (level < 1) continue;
      const bool together =
          each_level_ || static_cast<std::size_t>(
                             levels_[static_cast<std::size_t>(level)].vertices) > 2 * kMostRows;
      if (together && of_level.contains(level)) {
        box_of_[i] = of_level.at(level);
      } else {
        box_of_[i] = boxes_.size();
        if (together) of_level[level] = boxes_.size();
        // A dump's switches have their GUID behind the name.
        boxes_.push_back(
            {vertices[i].name.substr(0, vertices[i].name.find(" (")), vertices[i].name, level});
        const auto row = row_of_vertex_.find(static_cast<int>(i));
        if (level == 1 && row != row_of_vertex_.end()) {
          rows_[row->second].boxes.push_back(box_of_[i]);
        }
      }
      boxes_[box_of_[i]].switches.push_back(static_cast<int>(i));
    }
    for (Box& box : boxes_) {
      if (box.switches.size() > 1) box.name = fmt::format("{} switches", box.switches.size());
      if (box.switches.size() > 1) box.title = box.name;
      box.title = fmt::format("{}: level {}, from {}", box.title, box.level,
                              name_of(vertex(box.switches.front()).from));
    }
  }

  // Many switches with cables to the same others become one box.
  void join_twins() {
    std::vector<std::set<std::size_t>> others(boxes_.size());
    for (const Cable& cable : fabric_.cables()) {
      const std::size_t a = box_of_[static_cast<std::size_t>(cable.a)];
      const std::size_t b = box_of_[static_cast<std::size_t>(cable.b)];
      if (a == kNone || b == kNone) continue;
      others[a].insert(b);
      others[b].insert(a);
    }
    std::map<std::pair<int, std::set<std::size_t>>, std::vector<std::size_t>> twins;
    for (std::size_t i = 0; i < boxes_.size(); ++i) {
      if (boxes_[i].level > 1) twins[{boxes_[i].level, others[i]}].push_back(i);
    }
    for (const auto& [key, boxes] : twins) {
      if (boxes.size() <= kFewTwins) continue;
      std::vector<std::string> names;
      Box& kept = boxes_[boxes.front()];
      for (const std::size_t box : boxes) {
        names.push_back(boxes_[box].name);
        if (box == boxes.front()) continue;
        for (const int vertex : boxes_[box].switches) {
          box_of_[static_cast<std::size_t>(vertex)] = boxes.front();
          kept.switches.push_back(vertex);
        }
        boxes_[box].level = kJoined;
      }
      kept.name = node_list(names);
      kept.title =
          fmt::format("{} switches: {}, level {}", kept.switches.size(), kept.name, kept.level);
    }
  }

  void find_bundles() {
    for (std::size_t i = 0; i < fabric_.cables().size(); ++i) {
      const Cable& cable = fabric_.cables()[i];
      const double carried = i < drawing_.cable_bytes.size() ? drawing_.cable_bytes[i] : 0.0;
      std::size_t a = box_of_[static_cast<std::size_t>(cable.a)];
      std::size_t b = box_of_[static_cast<std::size_t>(cable.b)];
      if (a != kNone && b != kNone) {
        if (boxes_[a].level < boxes_[b].level) std::swap(a, b);
        bundles_[{a, b}].add(cable, carried);
      }
      for (const int end : {cable.a, cable.b}) {
        if (vertex(end).level == 0) ways_of_[end].add(cable, carried);
      }
    }
    for (const auto& [ends, bundle] : bundles_) worst_ = std::max(worst_, bundle.seconds);
    for (const auto& [host, bundle] : ways_of_) worst_ = std::max(worst_, bundle.seconds);
  }

  double host_height(const Row& row) const {
    return row.has_ranks ? 22 + kCell * static_cast<double>(dimensions_.size()) : 20;
  }
  // Hosts fill the width if there are few of them.
  double host_width() const {
    std::size_t ranks = 0, hosts = 1;
    for (const auto& [host, places] : places_) ranks = std::max(ranks, places.size());
    for (const Row& row : rows_) hosts = std::max(hosts, row.hosts.size());
    const double cells = kCell * static_cast<double>(ranks) + 14;
    return std::clamp(std::max(cells, std::min(150.0, kHosts / static_cast<double>(hosts))), 66.0,
                      kHosts);
  }
  int hosts_in_line() const { return std::max(1, static_cast<int>(kHosts / host_width())); }

  void place() {
    double y = kHead;
    for (Row& row : rows_) {
      const int lines = each_host() ? static_cast<int>((row.hosts.size() - 1) /
                                                       static_cast<std::size_t>(hosts_in_line())) +
                                          1
                                    : 1;
      row.y = y;
      const double boxes = static_cast<double>(row.boxes.size()) * (kBoxHeight + kBoxGap) - kBoxGap;
      row.height = std::max(each_host() ? lines * host_height(row) : kBoxHeight, boxes);
      double box_y = y + (row.height - boxes) / 2;
      for (const std::size_t box : row.boxes) {
        boxes_[box].y = box_y;
        box_y += kBoxHeight + kBoxGap;
      }
      y += row.height + 12;
    }
    height_ = y;
    for (int level = 2; level <= switch_levels(); ++level) place_level(level);
    height_ += kMargin;
  }

  // Spreads the boxes of a level, each as near as can be to the middle of those below it.
  void place_level(int level) {
    std::vector<std::pair<double, std::size_t>> wanted;
    for (std::size_t i = 0; i < boxes_.size(); ++i) {
      if (boxes_[i].level != level) continue;
      double sum = 0.0;
      int count = 0;
      for (const auto& [ends, bundle] : bundles_) {
        if (ends.first != i || boxes_[ends.second].level >= level) continue;
        sum += boxes_[ends.second].y;
        ++count;
      }
      wanted.emplace_back(count > 0 ? sum / count : kHead, i);
    }
    std::ranges::sort(wanted);
    const double needed = static_cast<double>(wanted.size()) * (kBoxHeight + kBoxGap);
    const double space = std::max(0.0, height_ - kHead - needed);
    double y = kHead, left = needed;
    for (const auto& [at, box] : wanted) {
      y = std::max(y, std::min(at - needed / 2, kHead + space + needed - left));
      boxes_[box].y = y;
      y += kBoxHeight + kBoxGap;
      left -= kBoxHeight + kBoxGap;
    }
    height_ = std::max(height_, y);
  }

  // Of the load of the worst link, which a step waits for.
  double share_of(double seconds) const { return worst_ > 0.0 ? seconds / worst_ : 0.0; }
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

  std::string line(const std::pair<std::size_t, std::size_t>& ends, const Bundle& bundle) const {
    const Box &high = boxes_[ends.first], &low = boxes_[ends.second];
    const double x = x_of(high.level) + kBoxWidth, y = high.y + kBoxHeight / 2;
    const double to = high.level == low.level ? x + 12 : x_of(low.level);
    return fmt::format("<path d=\"M{:.1f} {:.1f}L{:.1f} {:.1f}\" {}><title>{}</title></path>\n", x,
                       y, to, low.y + kBoxHeight / 2, line_style(bundle.seconds),
                       escape_html(shown(fmt::format("{} - {}: {}", high.name, low.name,
                                                     bundle.text(with_load())))));
  }

  std::string box_text(const Box& box) const {
    return fmt::format(
               "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.0f}\" height=\"{:.0f}\" rx=\"3\" "
               "class=\"box\">{}</rect>\n",
               x_of(box.level), box.y, kBoxWidth, kBoxHeight, title_of(box.title)) +
           text_at(x_of(box.level) + kBoxWidth / 2, box.y + 14, "middle", short_text(box.name, 20));
  }

  std::string row_text(const Row& row) const {
    std::string text;
    for (const std::size_t box : row.boxes) {
      const double y = boxes_[box].y + kBoxHeight / 2;
      text += fmt::format("<path d=\"M{:.1f} {:.1f}H{:.1f}\" class=\"axis\"/>\n",
                          x_of(1) + kBoxWidth, y, x_of_hosts() - 8);
    }
    text += fmt::format("<path d=\"M{:.1f} {:.1f}V{:.1f}\" class=\"axis\"/>\n", x_of_hosts() - 8,
                        row.y, row.y + row.height);
    if (!each_host()) return text + summary_of(row);
    for (std::size_t i = 0; i < row.hosts.size(); ++i) {
      const auto in_line = static_cast<std::size_t>(hosts_in_line());
      text += host_text(
          row.hosts[i], x_of_hosts() + static_cast<double>(i % in_line) * host_width(),
          row.y + static_cast<double>(i / in_line) * host_height(row), host_height(row) - 4);
    }
    return text;
  }

  // One line for the hosts of a row, with the longest load of their cables.
  std::string summary_of(const Row& row) const {
    std::vector<std::string> names;
    double seconds = 0.0;
    for (const int host : row.hosts) {
      names.push_back(vertex(host).name);
      const auto ways = ways_of_.find(host);
      if (ways != ways_of_.end()) seconds = std::max(seconds, ways->second.seconds);
    }
    std::string list = fmt::format("{} hosts", row.hosts.size());
    if (!each_level_) list += ": " + short_text(node_list(names), 40);
    const std::string title =
        with_load() ? fmt::format("the busiest of their cables: {} a step", busy_text(seconds))
                    : "their cables";
    return bar(x_of_hosts(), row.y, row.height, seconds, title) +
           text_at(x_of_hosts() + 12, row.y + 14, "left", list + places_of(row));
  }

  // "; data 0-3, tensor 0-7"
  std::string places_of(const Row& row) const {
    std::string text;
    for (const Dimension& dimension : dimensions_) {
      std::set<int> indices;
      for (const int host : row.hosts) {
        const auto places = places_.find(host);
        if (places == places_.end()) continue;
        for (const int place : places->second) indices.insert(dimension.index(place));
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
    const double width = host_width() - 6;
    const auto most = static_cast<std::size_t>((width - 8) / kLetter);
    const auto ways = ways_of_.find(host);
    const bool connected = ways != ways_of_.end();
    const std::string told = connected ? ways->second.text(with_load()) : "no cable";
    std::string text = fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.1f}\" height=\"{:.0f}\" class=\"host\"/>\n", x,
        y, width, height);
    text += bar(x, y, height, connected ? ways->second.seconds : 0.0,
                fmt::format("{}: {}", vertex(host).name, told));
    text += text_at(x + 9, y + 13, "left", short_text(vertex(host).name, most));
    const auto places = places_.find(host);
    if (places == places_.end()) return text;
    for (std::size_t i = 0; i < places->second.size(); ++i) {
      const int place = places->second[i];
      for (std::size_t d = 0; d < dimensions_.size(); ++d) {
        const int index = dimensions_[d].index(place);
        text += cell(x + 9 + static_cast<double>(i) * kCell,
                     y + 17 + static_cast<double>(d) * kCell, dimensions_[d], index,
                     fmt::format("place {}: {} {}", place, dimensions_[d].name, index));
      }
    }
    return text;
  }

  static std::string cell(double x, double y, const Dimension& dimension, int index,
                          const std::string& title) {
    return fmt::format(
        "<rect x=\"{:.1f}\" y=\"{:.1f}\" width=\"{:.0f}\" height=\"{:.0f}\" class=\"f{}\" "
        "fill-opacity=\"{:.2f}\">{}</rect>\n",
        x, y, kCell - 1, kCell - 1, dimension.colour, depth(dimension.part(index)),
        title_of(title));
  }

  // What the cells of a rank mean, from the top, and the colour of loads.
  std::string legend() const {
    constexpr int kSamples = 6;
    double x = kMargin;
    std::string text;
    const auto say = [&](const std::string& words) {
      text += text_at(x, 40, "left", words);
      x += static_cast<double>(words.size()) * kLetter + 6;
    };
    for (const Dimension& dimension : dimensions_) {
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
    if (worst_ <= 0.0) {
      say("nothing crosses a link in a step");
      return text;
    }
    say("a step's load of links: 0");
    for (int i = 0; i < kSamples; ++i) {
      const double share = static_cast<double>(i) / (kSamples - 1);
      text += fmt::format("<path d=\"M{:.1f} 36h14\" {}/>\n", x, line_style(share * worst_));
      x += 14;
    }
    x += 6;
    say(busy_text(worst_));
    return text;
  }

  static constexpr std::size_t kNone = static_cast<std::size_t>(-1);
  static constexpr int kJoined = -1;  // the level of a box that is part of another one

  const Fabric& fabric_;
  const FabricDrawing& drawing_;
  const std::vector<FabricLevel> levels_;
  std::vector<Dimension> dimensions_;
  std::map<int, std::vector<int>> places_;  // of each host
  std::vector<Row> rows_;
  std::map<int, std::size_t> row_of_vertex_;
  std::vector<Box> boxes_;
  std::vector<std::size_t> box_of_;                                // of each vertex
  std::map<std::pair<std::size_t, std::size_t>, Bundle> bundles_;  // the higher box first
  std::map<int, Bundle> ways_of_;                                  // of each host
  bool each_level_ = false;
  int hosts_ = 0;
  double worst_ = 0.0, height_ = 0.0;
};

}  // namespace

std::string svg_of_fabric(const Fabric& fabric, const FabricDrawing& drawing) {
  return Picture(fabric, drawing).svg();
}

}  // namespace trireme
