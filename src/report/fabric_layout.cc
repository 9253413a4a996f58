#include "fabric_layout.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/node_names.h"
#include "trireme/base/text.h"
#include "trireme/report/svg_plot.h"
#include "trireme/topology/network.h"

namespace trireme {
namespace {

constexpr std::size_t kMostHosts = 400, kMostRows = 64;
constexpr double kBoxGap = 6;
constexpr std::size_t kFewTwins = 4;  // switches with the same cables, drawn one by one

std::string capacity_text(double bytes_per_second) {
  return bytes_per_second > 0.0 ? fmt::format("{} Gbit/s", short_number(bytes_per_second * 8 / 1e9))
                                : "unknown rate";
}

}  // namespace

void FabricBundle::add(const Cable& cable, double carried) {
  ++cables;
  bytes_per_second += cable.bytes_per_second;
  bytes += carried;
  const double rate = cable.bytes_per_second > 0.0 ? cable.bytes_per_second
                                                   : TreeNetwork::Assumed().cable_bytes_per_second;
  seconds = std::max(seconds, carried / rate);
  sources.insert(name_of(cable.from));
  sources.insert(name_of(cable.rate_from));
}

std::string FabricBundle::text(bool with_load) const {
  std::string result = fmt::format("{} {}, {} each way", cables, cables == 1 ? "cable" : "cables",
                                   capacity_text(bytes_per_second));
  const char* separator = ", from ";
  for (const std::string_view source : sources) {
    result += separator + std::string(source);
    separator = " and ";
  }
  if (with_load) {
    result += fmt::format("; {} a step, {}", size_text(static_cast<std::uint64_t>(bytes)),
                          time_text(seconds));
  }
  return result;
}

FabricLayout::FabricLayout(const Fabric& fabric, const FabricDrawing& drawing)
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

bool FabricLayout::each_host() const {
  return static_cast<std::size_t>(hosts_) <= kMostHosts;
}

const std::vector<int>* FabricLayout::places(int host) const {
  const auto found = places_.find(host);
  return found == places_.end() ? nullptr : &found->second;
}

const FabricBundle* FabricLayout::ways_of(int host) const {
  const auto found = ways_of_.find(host);
  return found == ways_of_.end() ? nullptr : &found->second;
}

void FabricLayout::find_dimensions() {
  if (drawing_.host_of.empty()) return;
  for (std::size_t i = 0; i < kGridDimensions.size(); ++i) {
    const auto& [name, axes] = kGridDimensions[i];
    const int size = drawing_.grid.extent(axes);
    if (size > 1) dimensions_.push_back({name, static_cast<int>(i), axes, size});
  }
  if (dimensions_.empty()) dimensions_.push_back({kGridDimensions[0].name, 0, {}, 1});
}

void FabricLayout::find_rows() {
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
    const auto row = row_of.find(blocks[i]);
    if (row != row_of.end()) row_of_vertex_[static_cast<int>(i)] = row->second;
  }
}

void FabricLayout::find_boxes() {
  std::map<int, std::size_t> of_level;
  const auto& vertices = fabric_.vertices();
  box_of_.assign(vertices.size(), kNone);
  for (std::size_t i = 0; i < vertices.size(); ++i) {
    const int level = vertices[i].level;
    if (level < 1) continue;
    const bool together =
        each_level_ ||
        static_cast<std::size_t>(levels_[static_cast<std::size_t>(level)].vertices) > 2 * kMostRows;
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
  for (FabricBox& box : boxes_) {
    if (box.switches.size() > 1) box.name = fmt::format("{} switches", box.switches.size());
    if (box.switches.size() > 1) box.title = box.name;
    box.title = fmt::format("{}: level {}, from {}", box.title, box.level,
                            name_of(vertex(box.switches.front()).from));
  }
}

void FabricLayout::join_twins() {
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
    FabricBox& kept = boxes_[boxes.front()];
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

void FabricLayout::find_bundles() {
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

double FabricLayout::host_height(const FabricRow& row) const {
  return row.has_ranks ? 22 + kCell * static_cast<double>(dimensions_.size()) : 20;
}
// Hosts fill the width if there are few of them.
double FabricLayout::host_width() const {
  std::size_t ranks = 0, hosts = 1;
  for (const auto& [host, places] : places_) ranks = std::max(ranks, places.size());
  for (const FabricRow& row : rows_) hosts = std::max(hosts, row.hosts.size());
  const double cells = kCell * static_cast<double>(ranks) + 14;
  return std::clamp(std::max(cells, std::min(150.0, kHostsWidth / static_cast<double>(hosts))),
                    66.0, kHostsWidth);
}
int FabricLayout::hosts_in_line() const {
  return std::max(1, static_cast<int>(kHostsWidth / host_width()));
}

void FabricLayout::place() {
  double y = kFabricHead;
  for (FabricRow& row : rows_) {
    const int lines =
        each_host()
            ? static_cast<int>((row.hosts.size() - 1) / static_cast<std::size_t>(hosts_in_line())) +
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
  height_ += kFabricMargin;
}

void FabricLayout::place_level(int level) {
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
    wanted.emplace_back(count > 0 ? sum / count : kFabricHead, i);
  }
  std::ranges::sort(wanted);
  const double needed = static_cast<double>(wanted.size()) * (kBoxHeight + kBoxGap);
  const double space = std::max(0.0, height_ - kFabricHead - needed);
  double y = kFabricHead, left = needed;
  for (const auto& [at, box] : wanted) {
    y = std::max(y, std::min(at - needed / 2, kFabricHead + space + needed - left));
    boxes_[box].y = y;
    y += kBoxHeight + kBoxGap;
    left -= kBoxHeight + kBoxGap;
  }
  height_ = std::max(height_, y);
}

}  // namespace trireme
