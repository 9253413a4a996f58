#include "trireme/plan/site_description.h"

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"

namespace trireme::plan {
namespace {

constexpr const char* kNetwork = "network";

NetworkDescription::Constants constants_in(const Json& part) {
  return {.efficiency = part.at("efficiency").number(),
          .latency = part.at("latency").number(),
          .start = part.at("start").number()};
}

}  // namespace

std::string write_site(const SiteDescription& site) {
  std::string text = write_device(site.device);
  if (!site.constants) return text;
  const Json network = Json::object({{"name", site.network},
                                     {"efficiency", site.constants->efficiency},
                                     {"latency", site.constants->latency},
                                     {"start", site.constants->start}});
  const std::size_t open = text.find('{');
  text.insert(open + 1, fmt::format("\n \"{}\": {},", kNetwork, network.dump()));
  return text;
}

SiteDescription read_site(std::string_view text, const std::string& origin) {
  SiteDescription site;
  Json all;
  try {
    all = Json::parse_unique(text);
    if (const Json* network = all.is_object() ? all.find(kNetwork) : nullptr) {
      site.network = network->at("name").text();
      site.constants = constants_in(*network);
    }
  } catch (const JsonError& error) {
    throw ConfigError(
        fmt::format("{}: {}; a file was expected that trireme bench ops --describe "
                    "or plan --calibrate wrote",
                    origin, error.what()));
  }
  if (!site.constants) {
    site.device = read_device(text, origin);
    return site;
  }
  Json device = Json::object();
  for (const auto& [key, value] : all.members()) {
    if (key != kNetwork) device[key] = value;
  }
  site.device = read_device(device.dump(), origin);
  return site;
}

}  // namespace trireme::plan
