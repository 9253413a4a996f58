// Writes fabric.json: the network of a run, its ranks on it and what a step sends over its links.
#pragma once

#include <string>
#include <vector>

#include "trireme/comm/grid_shape.h"
#include "trireme/report/fabric_record.h"
#include "trireme/setup/communication.h"

namespace trireme {

// `hosts[rank]` names the node of each rank, `order` holds the rank at each place of the grid.
// Returns nothing where no fabric is known, and for one that is too large for a record.
std::optional<FabricRecord> make_fabric_record(const NetworkOfJob& network,
                                               const std::vector<std::string>& hosts,
                                               const std::vector<int>& order,
                                               const GridShape& shape, const GridTraffic& traffic);

// Writes the file, or removes that of an earlier start if there is no record. A failure is a line.
void write_fabric_record(const std::optional<FabricRecord>& record, const std::string& file);

}  // namespace trireme
