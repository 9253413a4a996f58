#include "trireme/report/fabric_record.h"

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"
#include "trireme/report/fabric_svg.h"
#include "trireme/topology/fabric_json.h"

namespace trireme {
namespace {

constexpr int kFormatVersion = 1;
constexpr std::size_t kMostMib = 64;

constexpr std::array<std::pair<const char*, double GridTraffic::*>, 4> kTraffic = {
    {{"data", &GridTraffic::data},
     {"pipeline", &GridTraffic::pipeline},
     {"tensor", &GridTraffic::tensor},
     {"ends", &GridTraffic::ends}}};

double bytes_of(const Json& number) {
  return std::clamp(number.number(), 0.0, 1e18);
}

void require(bool good, const char* what) {
  if (!good) throw JsonError(what);
}

FabricRecord record_of(const Json& json) {
  require(json.at("format_version").integer() == kFormatVersion, "another version");
  FabricRecord record{.fabric = fabric_from_json(json.at("fabric")),
                      .source = json.at("source").text(),
                      .grid = {},
                      .host_of = {},
                      .traffic = {},
                      .cable_bytes = {}};
  for (const auto& [name, axes] : kGridDimensions) {
    const int extent = json.at("grid").at(name).small_integer();
    require(extent >= 1, "no grid");
    record.grid.set_extent(axes, extent);
  }
  const int ranks = record.grid.ranks();
  require(ranks <= kMostGridRanks, "too many ranks");
  const auto& vertices = record.fabric.vertices();
  for (const Json& place : json.at("places").items()) {
    const int host = place.small_integer();
    require(host >= 0 && host < static_cast<int>(vertices.size()), "a rank on no host");
    require(!vertices[static_cast<std::size_t>(host)].is_switch, "a rank on a switch");
    record.host_of.push_back(host);
  }
  require(record.host_of.size() == static_cast<std::size_t>(ranks), "a host for each rank");
  for (const auto& [name, bytes] : kTraffic) {
    record.traffic.*bytes = bytes_of(json.at("step_bytes").at(name));
  }
  for (const Json& bytes : json.at("cable_bytes").items()) {
    record.cable_bytes.push_back(bytes_of(bytes));
  }
  require(record.cable_bytes.size() == record.fabric.cables().size(), "a load of each cable");
  return record;
}

}  // namespace

std::string to_json(const FabricRecord& record) {
  Json grid = Json::object(), traffic = Json::object();
  Json places = Json::array(), cable_bytes = Json::array();
  for (const auto& [name, axes] : kGridDimensions) grid[name] = record.grid.extent(axes);
  for (const auto& [name, bytes] : kTraffic) traffic[name] = record.traffic.*bytes;
  for (const int host : record.host_of) places.push_back(host);
  for (const double bytes : record.cable_bytes) cable_bytes.push_back(bytes);
  return Json::object({{"format_version", kFormatVersion},
                       {"source", record.source},
                       {"grid", std::move(grid)},
                       {"places", std::move(places)},
                       {"step_bytes", std::move(traffic)},
                       {"cable_bytes", std::move(cable_bytes)},
                       {"fabric", json_of(record.fabric)}})
             .dump() +
         "\n";
}

std::optional<FabricRecord> read_fabric_record(const std::string& path) {
  const auto text = read_if_there(path, ExitStatus::kRunFolder, kMostMib << 20);
  if (!text) return {};
  try {
    return record_of(Json::parse(*text));
  } catch (const JsonError&) {
    return {};
  } catch (const ConfigError&) {
    return {};  // damaged, or another version wrote it
  }
}

std::string svg_of(const FabricRecord& record) {
  return svg_of_fabric(record.fabric, {.title = "Ranks and links",
                                       .host_of = record.host_of,
                                       .grid = record.grid,
                                       .cable_bytes = record.cable_bytes});
}

}  // namespace trireme
