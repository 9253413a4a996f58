#include "trireme/topology/stored_rates.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <map>
#include <optional>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/environment.h"
#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/node_names.h"
#include "trireme/base/printable.h"

namespace trireme {
namespace {

constexpr std::string_view kFormat = "trireme network rates";
constexpr int kVersion = 1;
constexpr int kMostDistances = 16;

// What a network may have. Whoever predicts with more or less may leave the range of numbers.
struct Range {
  double least, most;
};
constexpr Range kSeconds = {1e-12, 1e6};
constexpr Range kRate = {1.0, 1e15};      // bytes per second
constexpr Range kOfByte = {1e-18, 1e-3};  // seconds
enum class Zero { kAllowed, kRefused };

double quantity(const Json& object, const char* key, Range range, Zero zero = Zero::kAllowed) {
  const double value = object.at(key).number();
  if (value == 0.0 && zero == Zero::kAllowed) return 0.0;
  if (!(range.least <= value && value <= range.most)) {  // so is not-a-number
    throw JsonError(
        fmt::format("{} is {}, not from {} to {}", key, value, range.least, range.most));
  }
  return value;
}

DistanceRates distance_of(const Json& object) {
  return {.latency = quantity(object, "latency", kSeconds),
          .flow = quantity(object, "flow", kRate, Zero::kRefused),
          .host = quantity(object, "host", kRate),
          .block = quantity(object, "block", kRate)};
}

MeasuredCollective collective_of(const Json& object) {
  const auto collective = collective_named(object.at("collective").text());
  if (!collective) throw JsonError("unknown collective " + object.at("collective").text());
  return {.collective = *collective,
          .algorithm = object.at("algorithm").text(),
          .bytes = static_cast<std::size_t>(object.at("bytes").unsigned_integer()),
          .ranks = object.at("ranks").small_integer(),
          .seconds = quantity(object, "seconds", kSeconds, Zero::kRefused)};
}

// Each tier must join whole blocks of the tier below.
void check_tiers(const StoredRates& stored) {
  const std::size_t expected = std::max<std::size_t>(stored.rates.distances.size(), 2) - 2;
  if (stored.tiers.size() != expected) {
    throw JsonError(fmt::format("{} tiers of blocks for {} distances", stored.tiers.size(),
                                stored.rates.distances.size()));
  }
  for (std::size_t tier = 0; tier < stored.tiers.size(); ++tier) {
    if (stored.tiers[tier].size() != stored.hosts.size()) {
      throw JsonError(fmt::format("tier {} places {} of {} hosts", tier + 1,
                                  stored.tiers[tier].size(), stored.hosts.size()));
    }
    if (tier == 0) continue;
    std::map<int, int> above;
    for (std::size_t host = 0; host < stored.hosts.size(); ++host) {
      const int block = stored.tiers[tier][host];
      if (above.emplace(stored.tiers[tier - 1][host], block).first->second != block) {
        throw JsonError(fmt::format("a block of tier {} is divided in tier {}", tier, tier + 1));
      }
    }
  }
}

StoredRates stored_of(const Json& file) {
  if (file.at("format").text() != kFormat) throw JsonError("it is of another format");
  if (file.at("version").small_integer() != kVersion) {
    throw JsonError(
        fmt::format("version {} is not {}", file.at("version").small_integer(), kVersion));
  }
  StoredRates stored;
  stored.cluster = file.at("cluster").text();
  stored.measured = file.at("measured").integer();
  for (const Json& host : file.at("hosts").items()) stored.hosts.push_back(host.text());
  const auto& distances = file.at("distances").items();
  if (distances.empty() || distances.size() > kMostDistances) {
    throw JsonError(fmt::format("{} distances", distances.size()));
  }
  for (const Json& one : distances) stored.rates.distances.push_back(distance_of(one));
  for (const Json& tier : file.at("tiers").items()) {
    stored.tiers.emplace_back();
    for (const Json& block : tier.items()) stored.tiers.back().push_back(block.small_integer());
  }
  check_tiers(stored);
  const Json& costs = file.at("costs");
  stored.rates.costs.message = quantity(costs, "message", kSeconds);
  stored.rates.costs.reduced_byte = quantity(costs, "reduced_byte", kOfByte);
  stored.rates.costs.copied_byte = quantity(costs, "copied_byte", kOfByte);
  for (const Json& one : file.at("collectives").items()) {
    stored.collectives.push_back(collective_of(one));
  }
  return stored;
}

}  // namespace

StoredRates read_network_rates(std::string_view text, const std::string& origin) {
  try {
    return stored_of(Json::parse(text));
  } catch (const JsonError& error) {
    throw ConfigError(
        fmt::format("{}: not a file of network rates: {}; trireme topo probe writes one", origin,
                    shown(error.what())));
  }
}

std::string write_network_rates(const StoredRates& stored) {
  Json hosts = Json::array(), distances = Json::array(), tiers = Json::array(),
       collectives = Json::array();
  for (const std::string& host : stored.hosts) hosts.push_back(host);
  for (const DistanceRates& one : stored.rates.distances) {
    distances.push_back(Json::object(
        {{"latency", one.latency}, {"flow", one.flow}, {"host", one.host}, {"block", one.block}}));
  }
  for (const std::vector<int>& tier : stored.tiers) {
    Json blocks = Json::array();
    for (const int block : tier) blocks.push_back(block);
    tiers.push_back(std::move(blocks));
  }
  for (const MeasuredCollective& one : stored.collectives) {
    collectives.push_back(Json::object({{"collective", name_of(one.collective)},
                                        {"algorithm", one.algorithm},
                                        {"bytes", std::uint64_t{one.bytes}},
                                        {"ranks", one.ranks},
                                        {"seconds", one.seconds}}));
  }
  const SimulatedCosts& costs = stored.rates.costs;
  return Json::object({{"format", kFormat},
                       {"version", kVersion},
                       {"cluster", stored.cluster},
                       {"measured", stored.measured},
                       {"hosts", std::move(hosts)},
                       {"distances", std::move(distances)},
                       {"tiers", std::move(tiers)},
                       {"costs", Json::object({{"message", costs.message},
                                               {"reduced_byte", costs.reduced_byte},
                                               {"copied_byte", costs.copied_byte}})},
                       {"collectives", std::move(collectives)}})
             .dump(1) +
         "\n";
}

std::string usual_rates_path() {
  if (std::string given = environment("TRIREME_NETWORK"); !given.empty()) return given;
  std::string folder = environment("XDG_CACHE_HOME");
  if (folder.empty()) {
    const std::string home = environment("HOME");
    if (home.empty()) return "";
    folder = home + "/.cache";
  }
  std::string cluster = environment("SLURM_CLUSTER_NAME");
  if (cluster.empty() || cluster.find('/') != std::string::npos) cluster = "local";
  return fmt::format("{}/trireme/network-{}.json", folder, cluster);
}

std::string why_stale(const StoredRates& stored, const std::vector<std::string>& hosts) {
  const std::vector<int> found = match_nodes(hosts, stored.hosts);
  std::vector<std::string> missing;
  for (std::size_t i = 0; i < hosts.size(); ++i) {
    if (found[i] < 0) missing.push_back(hosts[i]);
  }
  if (missing.empty()) return "";
  return fmt::format("measured without {}", shown(node_list(std::move(missing))));
}

std::string why_other_tiers(const NetworkRates& rates, int tiers) {
  const int distances = static_cast<int>(rates.distances.size());
  if (distances == tiers + 1) return "";
  return fmt::format("rates for {} distances, but the ranks have {}", distances, tiers + 1);
}

}  // namespace trireme
