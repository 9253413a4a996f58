#include <algorithm>
#include <map>
#include <numeric>
#include <optional>
#include <set>
#include <string_view>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"
#include "trireme/base/small_file.h"
#include "trireme/base/text.h"
#include "trireme/report/fabric_svg.h"
#include "trireme/report/html_page.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/fabric_json.h"
#include "trireme/topology/fabric_summary.h"
#include "trireme/topology/machine.h"
#include "trireme/topology/odd_cables.h"

#include "cli/outputs.h"
#include "cli/topo.h"

namespace trireme::cli {
namespace {

constexpr std::size_t kMostLeaves = 48;  // lines of the table
constexpr std::size_t kMostOdd = 8;      // slow cables, and as many tapers

std::string sources_text(const std::vector<FabricSource>& sources) {
  std::vector<std::string_view> names;
  for (const FabricSource source : sources) names.push_back(name_of(source));
  return fmt::format("{}", fmt::join(names, ", "));
}

std::string capacity_text(const FabricLevel& level) {
  if (level.cables_up == 0) return "";
  if (level.unknown_rates == level.cables_up) return "unknown";
  return fmt::format("{}{} Gbit/s", level.unknown_rates > 0 ? "above " : "",
                     short_number(level.up_bytes_per_second * 8 / 1e9));
}

void print_levels(const Fabric& fabric) {
  print_line(fmt::format("{:<22}{:>7}{:>11}{:>18}{:>8}  {}", "level", "number", "cables up",
                         "capacity up", "taper", "from"));
  int connected = 0;
  for (const FabricLevel& level : levels_of(fabric)) {
    connected += level.vertices;
    print_line(fmt::format(
        "{:<22}{:>7}{:>11}{:>18}{:>8}  {}",
        level.level == 0 ? "hosts" : fmt::format("switches of level {}", level.level),
        level.vertices, level.cables_up > 0 ? std::to_string(level.cables_up) : "",
        capacity_text(level), level.taper > 0.0 ? fmt::format("{:.3g}:1", level.taper) : "",
        sources_text(level.sources)));
  }
  const std::size_t others = fabric.vertices().size() - static_cast<std::size_t>(connected);
  if (others > 0) print_line(fmt::format("{:<22}{:>7}", "switches without hosts", others));
}

void print_rails(const Fabric& fabric) {
  const FabricRails rails = rails_of(fabric);
  if (rails.are_rails) {
    print_line(fmt::format("rails: {}, with {} leaf switches", rails.adapters,
                           fmt::join(rails.leaves, ", ")));
  } else if (rails.adapters > 1) {
    print_line(fmt::format("rails: none; hosts have up to {} adapters that share leaf switches",
                           rails.adapters));
  }
}

// Which hosts share leaf switches.
void print_leaves(const Fabric& fabric) {
  const std::vector<int> blocks = blocks_of(fabric, 1);
  struct Group {
    std::vector<std::string> leaves = {}, hosts = {};
  };
  std::vector<Group> groups;
  std::map<int, std::size_t> group_of;  // of each block
  for (const int host : hosts_by_name(fabric)) {
    const auto at = static_cast<std::size_t>(host);
    const auto [group, is_new] = group_of.emplace(blocks[at], groups.size());
    if (is_new) groups.emplace_back();
    groups[group->second].hosts.push_back(fabric.vertices()[at].name);
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    const auto group = group_of.find(blocks[i]);
    if (group == group_of.end() || !fabric.vertices()[i].is_switch) continue;
    groups[group->second].leaves.push_back(fabric.vertices()[i].name);
  }
  // A host on a switch above the leaves has none of these: that switch is named.
  for (const Cable& cable : fabric.cables()) {
    for (const auto& [host, above] : {std::pair(cable.a, cable.b), std::pair(cable.b, cable.a)}) {
      const FabricVertex& vertex = fabric.vertices()[static_cast<std::size_t>(above)];
      if (fabric.vertices()[static_cast<std::size_t>(host)].is_switch || vertex.level < 2) continue;
      auto& leaves = groups[group_of.at(blocks[static_cast<std::size_t>(host)])].leaves;
      const std::string text = fmt::format("{}, of level {}", vertex.name, vertex.level);
      if (std::ranges::find(leaves, text) == leaves.end()) leaves.push_back(text);
    }
  }
  std::size_t lines = 0;
  for (const Group& group : groups) {
    if (++lines > kMostLeaves) break;
    const std::string leaves =
        group.leaves.empty() ? "no switch" : fmt::format("{}", fmt::join(group.leaves, ", "));
    print_line(fmt::format("{}: {}", shown(leaves, 80), shown(node_list(group.hosts), 80)));
  }
  if (groups.size() > kMostLeaves) {
    print_line(fmt::format("and {} groups more (--json)", groups.size() - kMostLeaves));
  }
}

// What differs from its like. `part` is of the nodes that are asked for.
struct Odd {
  Odd(const Fabric& whole, const Fabric& part) : slow(slow_cables(part)) {
    std::set<std::string_view> names;
    for (const FabricVertex& vertex : part.vertices()) {
      if (vertex.is_switch) names.insert(vertex.name);
    }
    for (const OddTaper& odd : odd_tapers(whole)) {
      if (names.contains(whole.vertices()[static_cast<std::size_t>(odd.leaf)].name)) {
        tapers.push_back(odd);
      }
    }
  }
  std::vector<SlowCable> slow;   // of the part
  std::vector<OddTaper> tapers;  // of the whole
};

template <class Item>
void print_odd(const char* what, const Fabric& fabric, const std::vector<Item>& items) {
  for (std::size_t i = 0; i < std::min(items.size(), kMostOdd); ++i) {
    print_line(fmt::format("{}: {}", what, text_of(fabric, items[i])));
  }
  if (items.size() > kMostOdd) {
    print_line(fmt::format("{}: and {} more (--json)", what, items.size() - kMostOdd));
  }
}

void add_odd(Json& json, const Fabric& whole, const Fabric& part, const Odd& odd) {
  const auto name = [](const Fabric& fabric, int vertex) {
    return Json(fabric.vertices()[static_cast<std::size_t>(vertex)].name);
  };
  Json slow = Json::array(), tapers = Json::array();
  for (const SlowCable& each : odd.slow) {
    slow.push_back(
        Json::object({{"ends", Json::array({name(part, each.high), name(part, each.low)})},
                      {"bytes_per_second", part.cables()[each.cable].bytes_per_second},
                      {"usual_bytes_per_second", each.usual}}));
  }
  for (const OddTaper& each : odd.tapers) {
    tapers.push_back(Json::object({{"switch", name(whole, each.leaf)},
                                   {"taper", each.taper > 0.0 ? Json(each.taper) : Json()},
                                   {"usual", each.usual}}));
  }
  json["slow_cables"] = std::move(slow);
  json["odd_tapers"] = std::move(tapers);
}

// The inside of a host that a file tells, or of this one where nothing else is asked for.
struct Inside {
  std::optional<Machine> machine = {};
  cuda::GpuLinks links = {};
};
Inside inside_of(const TopoArguments& given, bool asked_for_others) {
  if (!given.hwloc.empty()) {
    return {read_machine_xml(read_small_file("--hwloc", given.hwloc), given.hwloc), {}};
  }
  if (asked_for_others) return {};
  return {read_this_machine(), cuda::gpu_links()};
}

// The rank at each place, as grid.order of the configuration says for a run.
std::vector<int> order_of_run(const Config& config, const GridShape& shape,
                              const GridTraffic& traffic, const Fabric& fabric,
                              const std::vector<std::string>& hosts) {
  const std::string& wanted = config.grid.order;
  if (wanted == "auto") {
    return order_ranks(shape, traffic, TreeNetwork(fabric, vertices_of(fabric, hosts), {}), hosts)
        .ranks;
  }
  if (wanted != "rank") {
    return read_rank_order(read_small_file("grid.order", wanted), "grid.order " + wanted, hosts);
  }
  std::vector<int> order(hosts.size());
  std::iota(order.begin(), order.end(), 0);
  return order;
}

// What the nodes of --nodes need to reach each other, with what was odd in the whole.
Fabric part_of_nodes(const TopoArguments& given, const Fabric& whole) {
  if (given.nodes.empty()) return whole;
  Fabric part = part_of(whole, vertices_of(whole, nodes_in_order(given, whole)));
  for (const std::string& remark : whole.remarks()) part.remark(remark);
  return part;
}

FabricDrawing drawing_of(const TopoArguments& given, const Fabric& fabric) {
  FabricDrawing drawing{"Fabric"};
  if (given.grid.empty()) {
    if (given.config.empty()) return drawing;
    throw ConfigError("topo show --config needs --grid, as in --grid 4x1x2");
  }
  drawing.grid = grid_of(given.grid);
  drawing.title = fmt::format("Fabric, with a grid of {}", drawing.grid.to_string());
  const std::vector<std::string> hosts = launcher_hosts(given, fabric, drawing.grid.ranks());
  drawing.host_of = vertices_of(fabric, hosts);
  if (given.config.empty()) return drawing;
  const Config config = config_of(given);
  const GridTraffic traffic = traffic_of_step(config, drawing.grid);
  const std::vector<int> of_rank = drawing.host_of;
  const std::vector<int> order = order_of_run(config, drawing.grid, traffic, fabric, hosts);
  std::ranges::transform(order, drawing.host_of.begin(),
                         [&](int rank) { return of_rank[static_cast<std::size_t>(rank)]; });
  drawing.cable_bytes = bytes_of_cables(drawing.grid, traffic, fabric, drawing.host_of);
  return drawing;
}

}  // namespace

FabricSources sources_of(const TopoArguments& given) {
  FabricSources sources;
  sources.slurm = given.slurm;
  sources.topology = given.topology;
  sources.dump = given.dump;
  sources.sysfs = given.sysfs;
  sources.host = given.host;
  sources.network = given.network;
  return sources;
}

GridShape grid_of(const std::string& text) {
  if (const std::optional<GridShape> grid = read_extents(text)) return *grid;
  throw ConfigError(fmt::format("--grid {}: expected {}, as in 4x1x2, of at most {} ranks",
                                shown(text), dimension_names(" x "), kMostGridRanks));
}

ExitStatus topo_show(const TopoArguments& given) {
  NamedOutput json_output(given.json), svg_output(given.svg);
  FabricSources sources = sources_of(given);
  const Inside inside = inside_of(given, !sources.empty());
  const bool find = sources.empty() && given.hwloc.empty();
  if (find) sources = find_fabric_sources();
  const Fabric whole = read_cluster(sources, true);
  const Fabric fabric = part_of_nodes(given, whole);
  const Odd odd(whole, fabric);
  const FabricDrawing drawing = drawing_of(given, fabric);
  if (!fabric.vertices().empty()) {
    print_levels(fabric);
    print_rails(fabric);
    print_leaves(fabric);
    print_odd("slow cable", fabric, odd.slow);
    print_odd("taper", whole, odd.tapers);
  } else if (find) {
    print_line(
        "nothing describes a fabric here: no SLURM_TOPOLOGY_ADDR of this node, topology.conf of "
        "Slurm's, TRIREME_FABRIC or InfiniBand port; name a description with --slurm, --dump or "
        "--sysfs");
  }
  if (inside.machine) {
    for (const std::string& line : lines_of(*inside.machine, inside.links)) print_line(line);
  }
  for (const std::string& remark : fabric.remarks()) print_line("remark: " + remark);
  if (json_output.is_there()) {
    Json json = json_of(fabric);
    add_odd(json, whole, fabric, odd);
    if (inside.machine) json["machine"] = json_of(*inside.machine, inside.links);
    json_output.write_whole(json.dump(1) + "\n");
  }
  if (svg_output.is_there()) {
    svg_output.write_whole(standalone_svg(svg_of_fabric(fabric, drawing)));
  }
  return ExitStatus::kDone;
}

}  // namespace trireme::cli
