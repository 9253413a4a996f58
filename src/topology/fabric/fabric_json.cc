#include "trireme/topology/fabric_json.h"

#include <algorithm>
#include <map>

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
  // What has no level is above all hosts.
  const auto level = [&](int vertex) {
    return static_cast<unsigned>(fabric.vertices()[static_cast<std::size_t>(vertex)].level);
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

using Names = std::map<std::string, int>;

// The vertex of that name, which is sooner one of `first`.
int find(const std::string& name, const Names& first, const Names& second) {
  if (const auto found = first.find(name); found != first.end()) return found->second;
  if (const auto found = second.find(name); found != second.end()) return found->second;
  throw JsonError("a cable to what is not listed");
}

FabricSource source_named(const std::string& name) {
  for (const FabricSource source :
       {FabricSource::kSlurm, FabricSource::kDump, FabricSource::kSysfs, FabricSource::kMeasured}) {
    if (name_of(source) == name) return source;
  }
  return FabricSource::kMadeUp;
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

Fabric fabric_from_json(const Json& json) {
  Fabric fabric(FabricSource::kMadeUp);
  Names hosts, switches, levels;  // the last: of switches
  for (const Json& one : json.at("vertices").items()) {
    const std::string& name = one.at("name").text();
    const bool is_switch = one.at("kind").text() == "switch";
    const int vertex = is_switch ? fabric.add_switch(name) : fabric.add_host(name);
    fabric.set_source(vertex, source_named(one.at("from").text()));
    (is_switch ? switches : hosts)[name] = vertex;
    if (!is_switch) continue;
    levels[name] = one.at("level").small_integer();
    if (levels[name] > 1) fabric.set_above(vertex);
  }
  for (const Json& one : json.at("cables").items()) {
    const std::string &upper = one.at("ends").at(0).text(), &lower = one.at("ends").at(1).text();
    // A host and a switch may have the same name; hosts are below switches of level 1.
    const bool above_hosts = switches.contains(upper) && levels[upper] == 1;
    Cable cable{find(upper, switches, hosts),
                above_hosts ? find(lower, hosts, switches) : find(lower, switches, hosts)};
    const Json& rate = one.at("bytes_per_second");
    if (rate.is_number()) cable.bytes_per_second = std::clamp(rate.number(), 0.0, 1e18);
    cable.from = source_named(one.at("from").text());
    const Json* const rate_from = one.find("rate_from");
    cable.rate_from = rate_from != nullptr ? source_named(rate_from->text()) : cable.from;
    if (const Json* adapter = one.find("adapter")) cable.adapter = adapter->text();
    fabric.keep_cable(std::move(cable));
  }
  fabric.find_levels();
  return fabric;
}

}  // namespace trireme
