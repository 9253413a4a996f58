#include "train/fabric_recorder.h"

#include <exception>
#include <set>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/files.h"
#include "trireme/base/log.h"
#include "trireme/base/node_names.h"
#include "trireme/io/whole_file.h"
#include "trireme/topology/cluster_fabric.h"
#include "trireme/topology/fabric_summary.h"

namespace trireme {

std::optional<FabricRecord> make_fabric_record(const NetworkOfJob& network,
                                               const std::vector<std::string>& hosts,
                                               const std::vector<int>& order,
                                               const GridShape& shape, const GridTraffic& traffic) {
  if (!network.network || !network.fabric) return {};
  Fabric whole = *network.fabric;
  const bool describes_nothing = whole.vertices().empty();
  const std::vector<int> vertices = add_nodes(whole, hosts);
  const std::set<int> used(vertices.begin(), vertices.end());
  if (describes_nothing) {
    const int above = whole.add_switch("unknown switches");
    for (const int host : used) whole.add_cable({above, host});
  }
  whole.find_levels();
  if (used.size() > kMostRecordedHosts) return {};
  FabricRecord record{.fabric = part_of(whole, {used.begin(), used.end()}),
                      .source = network.network->source,
                      .grid = shape,
                      .host_of = {},
                      .traffic = traffic,
                      .cable_bytes = {}};
  if (record.fabric.cables().size() > kMostRecordedCables) return {};
  // The rates that the algorithms were chosen for.
  merge_rates(record.fabric, network.network->rates,
              network.rates_are_measured ? FabricSource::kMeasured : FabricSource::kMadeUp);
  for (const int rank : order) {
    const int vertex = vertices[static_cast<std::size_t>(rank)];
    const std::string& name = whole.vertices()[static_cast<std::size_t>(vertex)].name;
    record.host_of.push_back(record.fabric.host(name).value());
  }
  record.cable_bytes = bytes_of_cables(shape, traffic, record.fabric, record.host_of);
  return record;
}

void write_fabric_record(const std::optional<FabricRecord>& record, const std::string& file) {
  try {
    if (record) {
      write_whole_file(file, to_json(*record));
    } else {
      remove_if_there(file, ExitStatus::kRunFolder);
    }
  } catch (const std::exception& error) {
    report_line(fmt::format("{}; the run goes on without it", error.what()));
  }
}

}  // namespace trireme
