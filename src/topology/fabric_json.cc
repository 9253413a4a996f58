#include "trireme/topology/fabric_json.h"

#include "trireme/topology/fabric_summary.h"

namespace trireme {
namespace {

constexpr int kFormatVersion = 1;

Json rate_of(double bytes_per_second) {
  return bytes_per_second > 0.0 ? Json(bytes_per_second) : Json();
}

Json json_of_cable(const Fabric& fabric, const Cable& cable) {
  const auto name = [&](int vertex) {
    return Json(fabric.vertices()[static_cast<std::size_t>(vertex)].name);
  };
  const auto level = [&](int vertex) {
    return fabric.vertices()[static_cast<std::size_t>(vertex)].level;
  };
  const bool a_is_lower = level(cable.a) < level(cable.b);
  const int upper = a_is_lower ? cable.b : cable.a, lower = a_is_lower ? cable.a : cable.b;
  Json json = Json::object({{"ends", Json::array({name(upper), name(lower)})},
                            {"from", name_of(cable.from)},
                            {"bytes_per_second", rate_of(cable.bytes_per_second)}});
  if (cable.bytes_per_second > 0.0) json["rate_from"] = name_of(cable.rate_from);
  if (!cable.adapter.empty()) json["adapter"] = cable.adapter;
  return json;
}

Json json_of_level(const FabricLevel& level) {
  Json sources = Json::array();
  for (const FabricSource source : level.sources) sources.push_back(name_of(source));
  return Json::object({{"level", level.level},
                       {"number", level.vertices},
                       {"cables_up", level.cables_up},
                       {"unknown_rates", level.unknown_rates},
                       {"up_bytes_per_second", rate_of(level.up_bytes_per_second)},
                       {"down_bytes_per_second", rate_of(level.down_bytes_per_second)},
                       {"taper", rate_of(level.taper)},
                       {"from", sources}});
}

}  // namespace

Json json_of(const Fabric& fabric) {
  Json vertices = Json::array(), cables = Json::array(), levels = Json::array();
  for (const FabricVertex& vertex : fabric.vertices()) {
    vertices.push_back(Json::object({{"name", vertex.name},
                                     {"level", vertex.level},
                                     {"kind", vertex.is_switch ? "switch" : "host"},
                                     {"from", name_of(vertex.from)}}));
  }
  for (const Cable& cable : fabric.cables()) cables.push_back(json_of_cable(fabric, cable));
  for (const FabricLevel& level : levels_of(fabric)) levels.push_back(json_of_level(level));
  const FabricRails rails = rails_of(fabric);
  Json remarks = Json::array();
  for (const std::string& remark : fabric.remarks()) remarks.push_back(remark);
  return Json::object({{"format_version", kFormatVersion},
                       {"levels", levels},
                       {"rails", rails.are_rails ? rails.adapters : 0},
                       {"vertices", vertices},
                       {"cables", cables},
                       {"remarks", remarks}});
}

}  // namespace trireme
