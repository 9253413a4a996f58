#include "trireme/setup/grid_placement.h"

#include <cstring>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/small_file.h"
#include "trireme/setup/communication.h"
#include "trireme/topology/cluster_fabric.h"

namespace trireme {
namespace {

// A node whose place is not known counts as connected above all switches.
TreeNetwork network_of_addresses(const std::vector<std::pair<std::string, std::string>>& addresses,
                                 const std::vector<std::string>& hosts) {
  Fabric fabric = fabric_by_slurm(addresses);
  const std::vector<int> host_of = add_nodes(fabric, hosts);
  return {fabric, host_of, {}};
}

// Collective over the world; one rank decides for all.
Placement cheapest(Runtime& runtime, const GridShape& shape, const GridTraffic& traffic,
                   const std::optional<JobNetwork>& known) {
  std::vector<std::pair<std::string, std::string>> addresses;
  if (!known) addresses = slurm_addresses(runtime);
  Placement placement;
  const std::string decided = runtime.world().read_once([&] {
    const TreeNetwork network = known ? TreeNetwork(known->blocks, known->rates)
                                      : network_of_addresses(addresses, runtime.hosts());
    const RankOrder order = order_ranks(shape, traffic, network, runtime.hosts());
    if (order.chosen.busiest < order.launcher.busiest) {
      placement.why = fmt::format(
          "rank order: by the model the busiest link has {:.0f} % of the load that grid.order rank "
          "gives it",
          100.0 * order.chosen.busiest / order.launcher.busiest);
    }
    return std::string(reinterpret_cast<const char*>(order.ranks.data()),
                       order.ranks.size() * sizeof(int));
  });
  placement.order.resize(static_cast<std::size_t>(runtime.size()));
  TRIREME_CHECK(decided.size() == placement.order.size() * sizeof(int), "an order of all ranks");
  std::memcpy(placement.order.data(), decided.data(), decided.size());
  return placement;
}

bool is_launchers(const std::vector<int>& order) {
  for (std::size_t place = 0; place < order.size(); ++place) {
    if (order[place] != static_cast<int>(place)) return false;
  }
  return true;
}

}  // namespace

Placement place_grid(Runtime& runtime, const std::string& wanted, const GridShape& shape,
                     const GridTraffic& traffic, const std::optional<JobNetwork>& network) {
  Placement placement;
  placement.order.resize(static_cast<std::size_t>(runtime.size()));
  std::iota(placement.order.begin(), placement.order.end(), 0);
  if (wanted == "auto") {
    // Islands are neighbours in the launcher's order.
    const bool one_island = shape.ranks() == runtime.size();
    if (runtime.nodes() > 1 && one_island) placement = cheapest(runtime, shape, traffic, network);
  } else if (wanted != "rank") {
    const std::string text =
        runtime.world().read_once([&] { return read_small_file("grid.order", wanted); });
    placement.order = read_rank_order(text, "grid.order " + wanted, runtime.hosts());
  }
  placement.places = describe_places(placement.order, runtime.hosts());
  if (!is_launchers(placement.order)) {
    if (placement.why.empty()) placement.why = "rank order";
    if (wanted != "auto") placement.why += fmt::format(" of {}", shown(wanted));
    placement.why += fmt::format("; places of the grid on each node: {}", shown(placement.places));
  }
  return placement;
}

}  // namespace trireme
