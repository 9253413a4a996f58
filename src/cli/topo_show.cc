#include <map>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/log.h"
#include "trireme/base/small_file.h"
#include "trireme/topology/fabric.h"

#include "cli/topo.h"

namespace trireme::cli {
namespace {

constexpr std::size_t kMostMib = 256;  // a dump of 10,000 nodes has less than 10

Fabric fabric_of(const TopoArguments& given) {
  if (given.dump.empty() == given.slurm.empty()) {
    throw ConfigError("topo show takes one of --dump FILE and --slurm FILE");
  }
  if (!given.dump.empty()) {
    return read_ibnetdiscover(read_small_file("--dump", given.dump, kMostMib), given.dump);
  }
  return read_slurm_topology(read_small_file("--slurm", given.slurm, kMostMib), given.slurm);
}

}  // namespace

ExitStatus topo_show(const TopoArguments& given) {
  Fabric fabric = fabric_of(given);
  fabric.find_levels();
  std::map<int, int> vertices;
  for (const FabricVertex& vertex : fabric.vertices()) ++vertices[vertex.level];
  print_line(fmt::format("{:<8}{:>9}", "level", "vertices"));
  for (const auto& [level, count] : vertices) print_line(fmt::format("{:<8}{:>9}", level, count));
  print_line(fmt::format("{} cables", fabric.cables().size()));
  for (const std::string& remark : fabric.remarks()) print_line(remark);
  return ExitStatus::kDone;
}

}  // namespace trireme::cli
