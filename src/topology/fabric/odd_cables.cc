#include "trireme/topology/odd_cables.h"

#include <algorithm>
#include <map>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/printable.h"
#include "trireme/base/upper_median.h"
#include "trireme/topology/fabric_summary.h"

namespace trireme {
namespace {

const FabricVertex& vertex_at(const Fabric& fabric, int vertex) {
  return fabric.vertices()[static_cast<std::size_t>(vertex)];
}

// The ends of a cable, the lower one first.
std::pair<int, int> ends_of(const Fabric& fabric, const Cable& cable) {
  const bool a_is_low = vertex_at(fabric, cable.a).level <= vertex_at(fabric, cable.b).level;
  return a_is_low ? std::pair(cable.a, cable.b) : std::pair(cable.b, cable.a);
}

// What tells the like of a cable: the switch of a host's, or the level of the lower switch.
using Kind = std::pair<bool, int>;

Kind kind_of(const Fabric& fabric, const Cable& cable) {
  const auto [low, high] = ends_of(fabric, cable);
  const bool is_of_host = !vertex_at(fabric, low).is_switch;
  return {is_of_host, is_of_host ? high : vertex_at(fabric, low).level};
}

std::string taper_text(double taper) {
  return fmt::format("{:.3g}:1", taper);
}

// The cables of a leaf switch.
struct LeafRates {
  double down = 0.0, up = 0.0;  // bytes per second
  bool are_known = true;
};

}  // namespace

std::vector<double> usual_rates(const Fabric& fabric) {
  std::map<Kind, std::vector<double>> rates;
  for (const Cable& cable : fabric.cables()) {
    if (cable.bytes_per_second > 0.0) {
      rates[kind_of(fabric, cable)].push_back(cable.bytes_per_second);
    }
  }
  std::map<Kind, double> usual;
  for (auto& [kind, all] : rates) usual[kind] = upper_median(std::move(all));
  std::vector<double> result;
  for (const Cable& cable : fabric.cables()) {
    result.push_back(cable.bytes_per_second > 0.0 ? usual.at(kind_of(fabric, cable)) : 0.0);
  }
  return result;
}

std::vector<SlowCable> slow_cables(const Fabric& fabric) {
  const std::vector<double> usual = usual_rates(fabric);
  std::vector<SlowCable> slow;
  for (std::size_t i = 0; i < usual.size(); ++i) {
    const Cable& cable = fabric.cables()[i];
    const auto [low, high] = ends_of(fabric, cable);
    const bool is_used = vertex_at(fabric, low).level >= 0;
    if (is_used && cable.bytes_per_second < kSlowShare * usual[i]) {
      slow.push_back({i, low, high, usual[i]});
    }
  }
  return slow;
}

std::string text_of(const Fabric& fabric, const SlowCable& slow) {
  const Cable& cable = fabric.cables()[slow.cable];
  const FabricVertex& low = vertex_at(fabric, slow.low);
  const std::string adapter = low.is_switch || cable.adapter.empty() ? "" : " " + cable.adapter;
  const std::string where =
      low.is_switch ? fmt::format("from switches of level {}", low.level) : "there";
  return fmt::format("{}{} to {}: {} says {}; usual {} is {}", shown(low.name), shown(adapter),
                     shown(vertex_at(fabric, slow.high).name), name_of(cable.rate_from),
                     gigabits(cable.bytes_per_second), where, gigabits(slow.usual));
}

std::vector<OddTaper> odd_tapers(const Fabric& fabric) {
  std::map<int, LeafRates> leaves;
  bool leads_up = false;
  for (const Cable& cable : fabric.cables()) {
    const auto [low, high] = ends_of(fabric, cable);
    const int level = vertex_at(fabric, low).level, above = vertex_at(fabric, high).level;
    if (level == 0 && above == 1) leaves[high].down += cable.bytes_per_second;
    if (level == 1 && above == 2) leaves[low].up += cable.bytes_per_second;
    leads_up = leads_up || (level == 1 && above == 2);
    const int leaf = level == 0 ? high : low;
    const bool counts = (level == 0 && above == 1) || (level == 1 && above == 2);
    if (counts && cable.bytes_per_second <= 0.0) leaves[leaf].are_known = false;
  }
  std::vector<double> shares;  // upwards over towards the hosts
  for (const auto& [leaf, rates] : leaves) {
    if (rates.are_known && rates.down > 0.0) shares.push_back(rates.up / rates.down);
  }
  std::vector<OddTaper> odd;
  if (!leads_up || shares.empty()) return odd;
  const double usual = upper_median(std::move(shares));
  if (usual <= 0.0) return odd;
  for (const auto& [leaf, rates] : leaves) {
    if (!rates.are_known || rates.down <= 0.0) continue;
    const double share = rates.up / rates.down;
    const auto [less, more] = std::minmax(share, usual);
    if (less < kSlowShare * more) odd.push_back({leaf, share > 0.0 ? 1 / share : 0.0, 1 / usual});
  }
  return odd;
}

std::string text_of(const Fabric& fabric, const OddTaper& odd) {
  return fmt::format("{}: {}; usual is {}", shown(vertex_at(fabric, odd.leaf).name),
                     odd.taper > 0.0 ? fmt::format("a taper of {}", taper_text(odd.taper))
                                     : "no cable to a switch above",
                     taper_text(odd.usual));
}

}  // namespace trireme
