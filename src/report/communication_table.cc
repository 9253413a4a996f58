#include "trireme/report/communication_table.h"

#include <algorithm>
#include <functional>
#include <iterator>
#include <numeric>
#include <utility>

#include "trireme/base/files.h"
#include "trireme/base/json.h"

namespace trireme {

void keep_longest(CommunicationTable& table, std::size_t most) {
  std::vector<CollectiveRecord>& rows = table.collectives;
  if (rows.size() <= most) return;
  std::vector<std::size_t> order(rows.size());
  std::iota(order.begin(), order.end(), 0);
  std::ranges::stable_sort(order, std::greater<>(), [&](std::size_t i) { return rows[i].time(); });
  table.left_out += static_cast<int>(rows.size() - most);
  order.resize(most);
  std::ranges::sort(order);
  std::vector<CollectiveRecord> kept;
  for (const std::size_t i : order) kept.push_back(std::move(rows[i]));
  rows = std::move(kept);
}

namespace {

Json tuned_to_json(const TunedCollective& one) {
  Json tried = Json::array();
  for (const auto& [algorithm, seconds] : one.tried) {
    tried.push_back(Json::object({{"algorithm", algorithm}, {"measured_s", seconds}}));
  }
  return Json::object({{"communicator", one.communicator},
                       {"collective", one.collective},
                       {"bytes", one.bytes},
                       {"algorithm", one.algorithm},
                       {"planned", one.planned},
                       {"tried", std::move(tried)}});
}

TunedCollective tuned_from_json(const Json& object) {
  TunedCollective one{.communicator = object.at("communicator").text(),
                      .collective = object.at("collective").text(),
                      .bytes = object.at("bytes").unsigned_integer(),
                      .algorithm = object.at("algorithm").text(),
                      .planned = object.at("planned").text(),
                      .tried = {}};
  for (const Json& each : object.at("tried").items()) {
    one.tried.emplace_back(each.at("algorithm").text(), each.at("measured_s").number());
  }
  return one;
}

}  // namespace

std::string to_json(const CommunicationTable& table) {
  Json communicators = Json::array(), collectives = Json::array(), tuned = Json::array();
  for (const TunedCollective& one : table.tuned) tuned.push_back(tuned_to_json(one));
  for (const CommunicatorRecord& one : table.communicators) {
    communicators.push_back(Json::object(
        {{"name", one.name}, {"ranks", one.ranks}, {"nodes", one.nodes}, {"table", one.table}}));
  }
  for (const CollectiveRecord& one : table.collectives) {
    collectives.push_back(Json::object({{"communicator", one.communicator},
                                        {"collective", one.collective},
                                        {"algorithm", one.algorithm},
                                        {"bytes", one.bytes},
                                        {"count", one.count},
                                        {"measured_s", one.measured_seconds},
                                        {"predicted_s", one.predicted_seconds},
                                        {"link", one.link},
                                        {"link_s", one.link_seconds},
                                        {"busbw_bytes_per_s", one.bus_bandwidth}}));
  }
  return Json::object({{"source", table.source},
                       {"order", table.order},
                       {"communicators", std::move(communicators)},
                       {"collectives", std::move(collectives)},
                       {"left_out", table.left_out},
                       {"tuned", std::move(tuned)}})
             .dump(1) +
         "\n";
}

std::optional<CommunicationTable> read_communication_table(const std::string& path) {
  const auto text = read_if_there(path, ExitStatus::kRunFolder);
  if (!text) return {};
  try {
    const Json object = Json::parse(*text);
    CommunicationTable table{.source = object.at("source").text(),
                             .order = object.at("order").text(),
                             .communicators = {},
                             .collectives = {},
                             .tuned = {}};
    // Older runs have no such count.
    if (const Json* left_out = object.find("left_out")) table.left_out = left_out->small_integer();
    for (const Json& one : object.at("communicators").items()) {
      table.communicators.push_back({.name = one.at("name").text(),
                                     .ranks = one.at("ranks").small_integer(),
                                     .nodes = one.at("nodes").small_integer(),
                                     .table = one.at("table").text()});
    }
    for (const Json& one : object.at("collectives").items()) {
      table.collectives.push_back({.communicator = one.at("communicator").text(),
                                   .collective = one.at("collective").text(),
                                   .algorithm = one.at("algorithm").text(),
                                   .bytes = one.at("bytes").unsigned_integer(),
                                   .count = one.at("count").small_integer(),
                                   .measured_seconds = one.at("measured_s").number(),
                                   .predicted_seconds = one.at("predicted_s").number(),
                                   .link = one.at("link").text(),
                                   .link_seconds = one.at("link_s").number(),
                                   .bus_bandwidth = one.at("busbw_bytes_per_s").number()});
    }
    // Older files have none.
    if (const Json* tuned = object.find("tuned")) {
      for (const Json& one : tuned->items()) table.tuned.push_back(tuned_from_json(one));
    }
    return table;
  } catch (const JsonError&) {
    return {};
  }
}

}  // namespace trireme
