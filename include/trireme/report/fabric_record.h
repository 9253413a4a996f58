// The network of a run: fabric.json in the run folder (io/RUN_FOLDER.md).
#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "trireme/comm/grid_shape.h"
#include "trireme/topology/fabric.h"
#include "trireme/topology/rank_order.h"

namespace trireme {

struct FabricRecord {
  Fabric fabric;       // the part that the job's nodes use
  std::string source;  // of the rates, for people
  GridShape grid;
  std::vector<int> host_of;  // by place of the grid: a host, a vertex
  GridTraffic traffic;       // of a step, estimated
  // What each cable carries in a step, each way, by the model of rank_order.h.
  std::vector<double> cable_bytes;
};

// What a record may hold, so that its file and its picture stay small.
inline constexpr std::size_t kMostRecordedHosts = 4096, kMostRecordedCables = 65536;

std::string to_json(const FabricRecord& record);
// Returns nothing if there is no such file, or if it is not a valid record.
std::optional<FabricRecord> read_fabric_record(const std::string& path);

// The picture: ranks on their hosts, and the load of links in a step.
std::string svg_of(const FabricRecord& record);

}  // namespace trireme
