#include "trireme/report/rank_table.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

#include "trireme/base/error.h"

namespace trireme {
namespace {

using Json = nlohmann::ordered_json;

// Four digits say enough, and keep the file of a thousand ranks small.
Json number(double value) {
  return std::isfinite(value) ? Json::parse(fmt::format("{:.4g}", value)) : Json(0);
}

RankTimes rank_of(const Json& row, std::size_t nodes) {
  RankTimes rank;
  rank.node = row.at(0).get<int>();
  rank.data = row.at(1).get<int>();
  rank.pipeline = row.at(2).get<int>();
  rank.tensor = row.at(3).get<int>();
  rank.micro_batches = row.at(4).get<int>();
  rank.compute_seconds = row.at(5).get<double>();
  rank.wait_data_seconds = row.at(6).get<double>();
  rank.comm_seconds = row.at(7).get<double>();
  rank.memory_bytes = row.at(8).get<double>();
  rank.times_peers = row.at(9).get<double>();
  if (rank.node < 0 || static_cast<std::size_t>(rank.node) >= nodes) {
    throw RunFolderError("a rank on a node that is not listed");
  }
  return rank;
}

}  // namespace

std::string to_json(const RankTable& table) {
  Json object = {{"first_step", table.first_step},
                 {"last_step", table.last_step},
                 {"gather_s", number(table.gather_seconds)},
                 {"stragglers", table.stragglers}};
  const auto dump = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  std::string text = dump(object);
  text.pop_back();  // the brace: rows follow, one a line
  text += ",\n\"nodes\": [";
  for (std::size_t i = 0; i < table.nodes.size(); ++i) {
    text += (i == 0 ? "\n" : ",\n") +
            dump({{"host", table.nodes[i].host},
                  {"link_bytes_per_s", number(table.nodes[i].bytes_per_second)}});
  }
  text +=
      "],\n\"columns\": [\"node\",\"data\",\"pipeline\",\"tensor\",\"micro_batches\",\"compute_s\","
      "\"wait_data_s\",\"comm_s\",\"memory_bytes\",\"times_peers\"],\n\"ranks\": [";
  for (std::size_t i = 0; i < table.ranks.size(); ++i) {
    const RankTimes& r = table.ranks[i];
    text += (i == 0 ? "\n" : ",\n") +
            dump(Json::array({r.node, r.data, r.pipeline, r.tensor, r.micro_batches,
                              number(r.compute_seconds), number(r.wait_data_seconds),
                              number(r.comm_seconds), static_cast<std::int64_t>(r.memory_bytes),
                              number(r.times_peers)}));
  }
  return text + "]}\n";
}

std::optional<RankTable> read_rank_table(const std::string& path) {
  std::ifstream file(path);
  if (!file) return {};
  try {
    const Json object = Json::parse(file);
    RankTable table;
    table.first_step = object.at("first_step").get<std::int64_t>();
    table.last_step = object.at("last_step").get<std::int64_t>();
    table.gather_seconds = object.at("gather_s").get<double>();
    table.stragglers = object.at("stragglers").get<std::vector<std::string>>();
    for (const Json& node : object.at("nodes")) {
      table.nodes.push_back(
          {node.at("host").get<std::string>(), node.at("link_bytes_per_s").get<double>()});
    }
    for (const Json& row : object.at("ranks")) {
      table.ranks.push_back(rank_of(row, table.nodes.size()));
    }
    if (table.ranks.empty()) return {};
    return table;
  } catch (const Json::exception&) {
    return {};
  } catch (const RunFolderError&) {
    return {};
  }
}

std::size_t slowest_rank(const RankTable& table) {
  const auto slowest =
      std::max_element(table.ranks.begin(), table.ranks.end(), [](const auto& a, const auto& b) {
        return std::pair(a.times_peers, a.own_seconds()) <
               std::pair(b.times_peers, b.own_seconds());
      });
  return static_cast<std::size_t>(slowest - table.ranks.begin());
}

}  // namespace trireme
