#include <map>
#include <numeric>

#include "trireme/base/error.h"
#include "trireme/topology/fabric_summary.h"
#include "trireme/topology/rank_order.h"

#include "topology/planning/place_loads.h"

namespace trireme {
namespace {

// The cables from inside of blocks of a tier to the next level, by block of blocks_of.
struct WaysUp {
  std::map<int, std::vector<std::size_t>> cables;
};

WaysUp ways_up(const Fabric& fabric, int tier, const std::vector<int>& blocks) {
  WaysUp ways;
  const auto level = [&](int vertex) {
    return fabric.vertices()[static_cast<std::size_t>(vertex)].level;
  };
  for (std::size_t i = 0; i < fabric.cables().size(); ++i) {
    const Cable& cable = fabric.cables()[i];
    const bool a_is_lower = level(cable.a) < level(cable.b);
    const int inside = a_is_lower ? cable.a : cable.b, outside = a_is_lower ? cable.b : cable.a;
    if (level(inside) < 0 || level(inside) > tier || level(outside) != tier + 1) continue;
    ways.cables[blocks[static_cast<std::size_t>(inside)]].push_back(i);
  }
  return ways;
}

}  // namespace

std::vector<double> bytes_of_cables(const GridShape& shape, const GridTraffic& traffic,
                                    const Fabric& fabric, const std::vector<int>& host_of) {
  TRIREME_CHECK(shape.ranks() == static_cast<int>(host_of.size()), "a host for each place");
  const TreeNetwork::Assumed assumed;
  const TreeNetwork network(fabric, host_of, assumed);
  const PlaceLoads loads(shape, traffic, network);
  HostsOfPlaces hosts;
  std::vector<int> vertex_of(static_cast<std::size_t>(loads.hosts()));
  for (int place = 0; place < loads.places(); ++place) {
    hosts.push_back(network.block(0, place));
    vertex_of[static_cast<std::size_t>(hosts.back())] = host_of[static_cast<std::size_t>(place)];
  }
  const std::vector<double> seconds = loads.seconds_of(hosts);
  const auto rate = [&](std::size_t cable) {
    const double known = fabric.cables()[cable].bytes_per_second;
    return known > 0.0 ? known : assumed.cable_bytes_per_second;
  };
  std::vector<double> bytes(fabric.cables().size(), 0.0);
  for (int tier = 0; tier < loads.tiers(); ++tier) {
    const std::vector<int> blocks = blocks_of(fabric, tier);
    const WaysUp ways = ways_up(fabric, tier, blocks);
    for (int host = 0; host < loads.hosts(); ++host) {
      const int vertex = vertex_of[static_cast<std::size_t>(host)];
      const auto way = ways.cables.find(blocks[static_cast<std::size_t>(vertex)]);
      if (way == ways.cables.end()) continue;
      const double busy = seconds[static_cast<std::size_t>(loads.block(tier, host))];
      // Each cable is busy as long as the whole way.
      for (const std::size_t cable : way->second) bytes[cable] = busy * rate(cable);
    }
  }
  return bytes;
}

}  // namespace trireme
