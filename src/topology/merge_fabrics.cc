#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/fabric_summary.h"

namespace trireme {
namespace {

constexpr double kSameRate = 0.01;     // rates that differ by less are the same
constexpr double kSameMeasured = 0.3;  // a measurement has overheads

// The hosts of a fabric.
struct Hosts {
  explicit Hosts(const Fabric& fabric) {
    for (std::size_t i = 0; i < fabric.vertices().size(); ++i) {
      if (fabric.vertices()[i].is_switch) continue;
      names.push_back(fabric.vertices()[i].name);
      vertices.push_back(static_cast<int>(i));
    }
  }
  std::vector<std::string> names;
  std::vector<int> vertices;
};

std::string gigabits(double bytes_per_second) {
  return fmt::format("{:.4g} Gbit/s", bytes_per_second * 8 / 1e9);
}

std::string some_names(std::vector<std::string> names) {
  return shown(node_list(std::move(names)));
}

// The leaf switches of each vertex that is a host.
std::vector<std::vector<int>> leaves_of(const Fabric& fabric) {
  const auto& vertices = fabric.vertices();
  std::vector<std::vector<int>> leaves(vertices.size());
  for (const Cable& cable : fabric.cables()) {
    for (const auto& [host, leaf] : {std::pair(cable.a, cable.b), std::pair(cable.b, cable.a)}) {
      auto& own = leaves[static_cast<std::size_t>(host)];
      if (vertices[static_cast<std::size_t>(host)].is_switch) continue;
      if (!vertices[static_cast<std::size_t>(leaf)].is_switch) continue;
      if (std::ranges::find(own, leaf) == own.end()) own.push_back(leaf);
    }
  }
  return leaves;
}

class Merge {
 public:
  Merge(Fabric trusted, Fabric detailed)
      : trusted_(std::move(trusted)),
        detailed_(std::move(detailed)),
        trusted_leaves_(leaves_of(trusted_)),
        detailed_leaves_(leaves_of(detailed_)) {}

  Fabric merged() {
    pair_hosts();
    if (common_ == 0) {
      trusted_.remark(fmt::format(
          "{} describes none of the hosts of {}, such as '{}': it is of another cluster and is "
          "left out",
          name_of(detailed_.source()), name_of(trusted_.source()), shown(first_host())));
      return std::move(trusted_);
    }
    match_leaves();
    find_moved();
    if (2 * moved_.size() > common_) {
      trusted_.remark(
          fmt::format("{} and {} put {} of {} hosts below other leaf switches: {} is left out",
                      name_of(trusted_.source()), name_of(detailed_.source()), moved_.size(),
                      common_, name_of(detailed_.source())));
      return std::move(trusted_);
    }
    copy_detailed();
    move_hosts();
    add_missing_hosts();
    compare_levels();
    result_.find_levels();
    return std::move(result_);
  }

 private:
  std::string first_host() const {
    for (const FabricVertex& vertex : trusted_.vertices()) {
      if (!vertex.is_switch) return vertex.name;
    }
    return "";
  }

  // Sets twin_: of each host of `detailed` the same host of `trusted`.
  void pair_hosts() {
    const Hosts theirs(trusted_), ours(detailed_);
    const std::vector<int> found = match_nodes(ours.names, theirs.names);
    twin_.assign(detailed_.vertices().size(), -1);
    for (std::size_t i = 0; i < found.size(); ++i) {
      if (found[i] < 0) continue;
      twin_[static_cast<std::size_t>(ours.vertices[i])] =
          theirs.vertices[static_cast<std::size_t>(found[i])];
      ++common_;
    }
  }

  const std::vector<int>& trusted_leaves(int host) const {
    return trusted_leaves_[static_cast<std::size_t>(host)];
  }

  // Sets matched_: of each leaf switch of `detailed` the one of `trusted` that has most of its
  // hosts.
  void match_leaves() {
    std::map<int, std::map<int, int>> votes;
    for (std::size_t i = 0; i < twin_.size(); ++i) {
      if (twin_[i] < 0) continue;
      for (const int leaf : detailed_leaves_[i]) {
        for (const int other : trusted_leaves(twin_[i])) ++votes[leaf][other];
      }
    }
    for (const auto& [leaf, others] : votes) {
      const auto most =
          std::ranges::max_element(others, {}, [](const auto& vote) { return vote.second; });
      matched_[leaf] = most->first;
      detailed_of_[most->first].push_back(leaf);
    }
  }

  // Finds the hosts that the two put below different leaf switches.
  void find_moved() {
    for (std::size_t i = 0; i < twin_.size(); ++i) {
      if (twin_[i] < 0 || trusted_leaves(twin_[i]).empty() || detailed_leaves_[i].empty()) continue;
      const auto& told = trusted_leaves(twin_[i]);
      const bool agreed = std::ranges::any_of(detailed_leaves_[i], [&](int leaf) {
        const auto match = matched_.find(leaf);
        return match != matched_.end() && std::ranges::find(told, match->second) != told.end();
      });
      if (!agreed) moved_.insert(static_cast<int>(i));
    }
  }

  void copy_detailed() {
    for (const std::string& text : trusted_.remarks()) result_.remark(text);
    for (const std::string& text : detailed_.remarks()) result_.remark(text);
    for (std::size_t i = 0; i < twin_.size(); ++i) {
      const FabricVertex& vertex = detailed_.vertices()[i];
      const bool known = twin_[i] >= 0;
      const int copy = vertex.is_switch ? result_.add_switch(vertex.name)
                       : known          ? result_.add_host(trusted_name(twin_[i]))
                                        : result_.add_host(vertex.name);
      result_.set_source(copy, known ? trusted_.source() : vertex.from);
      copy_of_.push_back(copy);
    }
    for (Cable cable : detailed_.cables()) {
      if (moved_.contains(cable.a) || moved_.contains(cable.b)) continue;
      for (const int end : {cable.a, cable.b}) {
        // Both tell below which leaf switch the host is.
        const int twin = twin_[static_cast<std::size_t>(end)];
        if (twin >= 0 && !trusted_leaves(twin).empty()) cable.from = trusted_.source();
      }
      cable.a = copy_of_[static_cast<std::size_t>(cable.a)];
      cable.b = copy_of_[static_cast<std::size_t>(cable.b)];
      result_.keep_cable(std::move(cable));
    }
  }

  const std::string& trusted_name(int vertex) const {
    return trusted_.vertices()[static_cast<std::size_t>(vertex)].name;
  }

  // The switches of the result that stand for a leaf switch of `trusted`; made if there are none.
  std::vector<int> standing_for(int leaf) {
    const auto known = detailed_of_.find(leaf);
    if (known != detailed_of_.end()) {
      std::vector<int> result;
      for (const int other : known->second) {
        result.push_back(copy_of_[static_cast<std::size_t>(other)]);
      }
      return result;
    }
    const auto [made, is_new] = made_.emplace(leaf, 0);
    if (is_new) {
      made->second = result_.add_switch(trusted_name(leaf));
      result_.set_source(made->second, trusted_.source());
      connect_above(made->second);
    }
    return {made->second};
  }

  // Cables from a switch that only `trusted` knows to the switches above the others.
  void connect_above(int leaf) {
    std::set<int> above;
    for (const Cable& cable : detailed_.cables()) {
      for (const auto& [low, high] : {std::pair(cable.a, cable.b), std::pair(cable.b, cable.a)}) {
        if (level(low) == 1 && level(high) == 2) above.insert(high);
      }
    }
    for (const int high : above) {
      Cable cable{leaf, copy_of_[static_cast<std::size_t>(high)]};
      cable.from = cable.rate_from = trusted_.source();
      result_.keep_cable(std::move(cable));
    }
  }
  int level(int vertex) const {
    return detailed_.vertices()[static_cast<std::size_t>(vertex)].level;
  }

  void move_hosts() {
    for (const int host : moved_) {
      const auto i = static_cast<std::size_t>(host);
      const int leaf = trusted_leaves(twin_[i]).front();
      result_.remark(fmt::format(
          "host '{}': {} puts it below '{}', {} below '{}'; {} counts",
          shown(trusted_name(twin_[i])), name_of(trusted_.source()), shown(trusted_name(leaf)),
          name_of(detailed_.source()),
          shown(detailed_.vertices()[static_cast<std::size_t>(detailed_leaves_[i].front())].name),
          name_of(trusted_.source())));
    }
    std::map<int, std::size_t> cables;  // of each host so far
    for (Cable cable : detailed_.cables()) {
      for (auto [host, other] : {std::pair(cable.a, cable.b), std::pair(cable.b, cable.a)}) {
        if (!moved_.contains(host)) continue;
        const auto i = static_cast<std::size_t>(host);
        const std::vector<int> leaves = standing_for(trusted_leaves(twin_[i]).front());
        cable.a = leaves[cables[host]++ % leaves.size()];
        cable.b = copy_of_[i];
        cable.from = trusted_.source();
        result_.keep_cable(cable);
        break;
      }
    }
  }

  void add_missing_hosts() {
    std::set<int> twins(twin_.begin(), twin_.end());
    std::vector<std::string> missing, more;
    for (std::size_t i = 0; i < trusted_.vertices().size(); ++i) {
      const int vertex = static_cast<int>(i);
      if (trusted_.vertices()[i].is_switch || twins.contains(vertex)) continue;
      missing.push_back(trusted_.vertices()[i].name);
      const int host = result_.add_host(missing.back());
      result_.set_source(host, trusted_.source());
      for (const int leaf : trusted_leaves(vertex)) {
        Cable cable{standing_for(leaf).front(), host};
        cable.from = cable.rate_from = trusted_.source();
        result_.keep_cable(std::move(cable));
      }
    }
    for (std::size_t i = 0; i < twin_.size(); ++i) {
      const FabricVertex& vertex = detailed_.vertices()[i];
      if (!vertex.is_switch && twin_[i] < 0) more.push_back(vertex.name);
    }
    if (!missing.empty()) say_missing(missing, trusted_.source(), detailed_.source());
    // Of a job's own addresses no more is expected than the job's hosts.
    if (!more.empty() && more.size() < common_) {
      say_missing(more, detailed_.source(), trusted_.source());
    }
  }
  void say_missing(const std::vector<std::string>& hosts, FabricSource known,
                   FabricSource unknown) {
    result_.remark(fmt::format("{} of {} {} not in {}: {}", hosts.size() == 1 ? "a host" : "hosts",
                               name_of(known), hosts.size() == 1 ? "is" : "are", name_of(unknown),
                               some_names(hosts)));
  }

  void compare_levels() {
    const auto count = [](const Fabric& fabric) { return levels_of(fabric).size(); };
    const std::size_t told = count(trusted_), found = count(detailed_);
    if (told <= 2 || told == found) return;  // many descriptions are of leaf switches alone
    result_.remark(
        fmt::format("{} tells of {} levels of switches, {} of {}; the cables are those of {}",
                    name_of(trusted_.source()), told - 1, name_of(detailed_.source()), found - 1,
                    name_of(detailed_.source())));
  }

  Fabric trusted_, detailed_;
  std::vector<std::vector<int>> trusted_leaves_, detailed_leaves_;
  Fabric result_{trusted_.source()};
  std::vector<int> twin_, copy_of_;  // by vertex of `detailed`
  std::size_t common_ = 0;
  std::map<int, int> matched_;                   // leaf of `detailed` to one of `trusted`
  std::map<int, std::vector<int>> detailed_of_;  // and back
  std::map<int, int> made_;                      // leaf of `trusted` to a switch of the result
  std::set<int> moved_;                          // hosts of `detailed`
};

bool same_rate(double a, double b, double within) {
  return std::abs(a - b) <= within * std::max(a, b);
}

// A cable of a host in a fabric, by its place.
using HostCables = std::vector<std::size_t>;

HostCables cables_of(const Fabric& fabric, int host) {
  HostCables result;
  for (std::size_t i = 0; i < fabric.cables().size(); ++i) {
    const Cable& cable = fabric.cables()[i];
    if (cable.a == host || cable.b == host) result.push_back(i);
  }
  return result;
}

// Takes a rate for a cable, or says what is odd.
void take_rate(Fabric& fabric, std::size_t at, double rate, FabricSource from,
               const std::string& what, double within) {
  const Cable& cable = fabric.cables()[at];
  if (cable.bytes_per_second <= 0.0) {
    fabric.set_rate(at, rate, from);
  } else if (!same_rate(cable.bytes_per_second, rate, within)) {
    fabric.remark(fmt::format("{}: {} says {}, {} {}; {} counts", what, name_of(cable.rate_from),
                              gigabits(cable.bytes_per_second), name_of(from), gigabits(rate),
                              name_of(cable.rate_from)));
  }
}

}  // namespace

std::vector<int> add_nodes(Fabric& fabric, const std::vector<std::string>& names,
                           std::vector<std::string>* missing) {
  const Hosts known(fabric);
  const std::vector<int> found = match_nodes(names, known.names);
  std::vector<int> result;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (found[i] >= 0) {
      result.push_back(known.vertices[static_cast<std::size_t>(found[i])]);
      continue;
    }
    const bool is_new = !fabric.host(names[i]);
    if (is_new && missing != nullptr) missing->push_back(names[i]);
    result.push_back(fabric.add_host(names[i]));
  }
  return result;
}

std::optional<int> find_node(const Fabric& fabric, const std::string& name) {
  const Hosts known(fabric);
  const int found = match_nodes({name}, known.names).front();
  if (found < 0) return {};
  return known.vertices[static_cast<std::size_t>(found)];
}

bool leads_to(const Cable& cable, const LocalPort& port) {
  if (cable.adapter_port != 0 && port.number != 0 && cable.adapter_port != port.number) {
    return false;
  }
  if (cable.adapter_guid != 0 && port.guid != 0) return cable.adapter_guid == port.guid;
  return !cable.adapter.empty() && cable.adapter == port.adapter;
}

Fabric merge_fabrics(Fabric trusted, Fabric detailed) {
  return Merge(std::move(trusted), std::move(detailed)).merged();
}

void merge_ports(Fabric& fabric, const std::string& host, const std::vector<LocalPort>& ports) {
  const std::optional<int> self = find_node(fabric, host);
  if (!self && !fabric.vertices().empty()) {
    fabric.remark(
        fmt::format("this host, '{}', is not in the fabric; the ports that sysfs has are left out",
                    shown(host)));
    return;
  }
  const HostCables cables = self ? cables_of(fabric, *self) : HostCables{};
  double others = 0.0;  // capacity of the ports that no cable names
  for (const LocalPort& port : ports) {
    if (port.link_layer != "InfiniBand") continue;
    const auto own = std::ranges::find_if(
        cables, [&](std::size_t at) { return leads_to(fabric.cables()[at], port); });
    const std::string what = shown(fmt::format("{} {} port {}", host, port.adapter, port.number));
    if (port.state != "ACTIVE") {
      if (own != cables.end()) {
        fabric.remark(fmt::format("{}: {} has a cable there, in sysfs it is {} ({})", what,
                                  name_of(fabric.cables()[*own].from), shown(port.state),
                                  shown(port.physical_state)));
      }
    } else if (port.bytes_per_second <= 0.0) {
      fabric.remark(fmt::format("{}: the rate '{}' is unknown", what, shown(port.rate)));
    } else if (own != cables.end()) {
      take_rate(fabric, *own, port.bytes_per_second, FabricSource::kSysfs, what, kSameRate);
    } else if (cables.empty()) {
      const int here = fabric.add_host(host);
      const int above = fabric.add_switch("subnet " + port.subnet);
      Cable cable{above, here, port.bytes_per_second};
      cable.from = cable.rate_from = FabricSource::kSysfs;
      cable.adapter = port.adapter;
      cable.adapter_guid = port.guid;
      fabric.set_source(here, FabricSource::kSysfs);
      fabric.set_source(above, FabricSource::kSysfs);
      fabric.keep_cable(std::move(cable));
    } else {
      others += port.bytes_per_second;
    }
  }
  // One cable that says nothing of adapters stands for all of them.
  if (others > 0.0 && cables.size() == 1 && fabric.cables()[cables.front()].adapter.empty()) {
    take_rate(fabric, cables.front(), others, FabricSource::kSysfs, shown(host), kSameRate);
  }
  fabric.find_levels();
}

Fabric fabric_of_rates(const StoredRates& stored) {
  Fabric fabric(FabricSource::kMeasured);
  std::set<std::pair<int, int>> cabled;
  for (std::size_t i = 0; i < stored.hosts.size(); ++i) {
    int below = fabric.add_host(stored.hosts[i]);
    for (std::size_t tier = 0; tier <= stored.tiers.size(); ++tier) {
      const int block = tier < stored.tiers.size() ? stored.tiers[tier].at(i) : 0;
      const int above = fabric.add_switch(fmt::format("block {} of tier {}", block, tier + 1));
      if (cabled.emplace(above, below).second) fabric.add_cable({above, below});
      below = above;
    }
  }
  fabric.find_levels();
  return fabric;
}

void merge_rates(Fabric& fabric, const NetworkRates& measured, FabricSource from) {
  const std::vector<FabricLevel> levels = levels_of(fabric);
  // What leaves a block of tier t together, as messages to the next distance show it.
  for (std::size_t tier = 0; tier + 1 < levels.size() && tier + 1 < measured.distances.size();
       ++tier) {
    const DistanceRates& distance = measured.distances[tier + 1];
    const double of_host = distance.host > 0.0 ? distance.host : distance.flow;
    const double rate = tier == 0 ? of_host : distance.block;
    if (!(rate > 0.0) || !std::isfinite(rate)) continue;
    const std::vector<int> blocks = blocks_of(fabric, static_cast<int>(tier));
    const auto level = [&](int vertex) {
      return fabric.vertices()[static_cast<std::size_t>(vertex)].level;
    };
    std::map<int, HostCables> ways_up;  // of each block
    for (std::size_t i = 0; i < fabric.cables().size(); ++i) {
      const Cable& cable = fabric.cables()[i];
      const bool a_is_low = level(cable.a) < level(cable.b);
      const int low = a_is_low ? cable.a : cable.b, high = a_is_low ? cable.b : cable.a;
      if (level(low) != static_cast<int>(tier) || level(high) != level(low) + 1) continue;
      ways_up[blocks[static_cast<std::size_t>(low)]].push_back(i);
    }
    std::size_t differ = 0;
    double told = 0.0;
    FabricSource source = FabricSource::kMadeUp;
    for (const auto& [block, cables] : ways_up) {
      double known = 0.0;
      bool all = true;
      for (const std::size_t at : cables) {
        const Cable& cable = fabric.cables()[at];
        all = all && cable.bytes_per_second > 0.0;
        known += cable.bytes_per_second;
        if (cable.bytes_per_second > 0.0) continue;
        fabric.set_rate(at, rate / static_cast<double>(cables.size()), from);
      }
      if (!all || from != FabricSource::kMeasured || same_rate(known, rate, kSameMeasured)) {
        continue;
      }
      if (differ++ == 0) {
        told = known;
        source = fabric.cables()[cables.front()].rate_from;
      }
    }
    if (differ == 0) continue;
    fabric.remark(fmt::format(
        "{}: {} says {}, measurement {}, for {} of {}; {} counts",
        tier == 0 ? "the cables of a host"
                  : fmt::format("the ways up from a switch of level {}", tier),
        name_of(source), gigabits(told), gigabits(rate), differ, ways_up.size(), name_of(source)));
  }
}

}  // namespace trireme
