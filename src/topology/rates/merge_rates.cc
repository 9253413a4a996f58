// Rates of cables: what ports tell, what was measured, and what is assumed.
#include <algorithm>
#include <cmath>
#include <map>
#include <optional>
#include <set>

#include <fmt/format.h>

#include "trireme/base/printable.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/fabric_summary.h"

namespace trireme {
namespace {

constexpr double kSameRate = 0.01;     // rates that differ by less are the same
constexpr double kSameMeasured = 0.3;  // a measurement has overheads

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

bool leads_to(const Cable& cable, const LocalPort& port) {
  if (cable.adapter_port != 0 && port.number != 0 && cable.adapter_port != port.number) {
    return false;
  }
  if (cable.adapter_guid != 0 && port.guid != 0) return cable.adapter_guid == port.guid;
  return !cable.adapter.empty() && cable.adapter == port.adapter;
}

std::optional<int> host_of_ports(const Fabric& fabric, const std::vector<LocalPort>& ports) {
  for (const Cable& cable : fabric.cables()) {
    const bool is_own =
        cable.adapter_guid != 0 && std::ranges::any_of(ports, [&](const auto& port) {
          return port.guid == cable.adapter_guid;
        });
    if (!is_own) continue;
    const int self =
        fabric.vertices()[static_cast<std::size_t>(cable.a)].is_switch ? cable.b : cable.a;
    if (fabric.vertices()[static_cast<std::size_t>(self)].name.ends_with(')')) return self;
  }
  return {};
}

void merge_ports(Fabric& fabric, const std::string& host, const std::vector<LocalPort>& ports) {
  std::optional<int> self = find_node(fabric, host);
  if (!self) self = host_of_ports(fabric, ports);
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
