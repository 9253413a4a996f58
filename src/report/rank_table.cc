#include "trireme/report/rank_table.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/files.h"
#include "trireme/base/json.h"

namespace trireme {
namespace {

// Four digits are enough, and keep the file small for a thousand ranks.
Json number(double value) {
  return std::isfinite(value) ? Json::parse(fmt::format("{:.4g}", value)) : Json(0);
}

RankTimes rank_of(const Json& row, std::size_t nodes) {
  RankTimes rank;
  std::size_t column = 0;
  const auto next = [&]() -> const Json& { return row.at(column++); };
  rank.node = next().small_integer();
  for (int& index : rank.place) index = next().small_integer();
  rank.micro_batches = next().small_integer();
  rank.compute_seconds = next().number();
  rank.wait_data_seconds = next().number();
  rank.comm_seconds = next().number();
  rank.memory_bytes = next().number();
  rank.times_peers = next().number();
  if (rank.node < 0 || static_cast<std::size_t>(rank.node) >= nodes) {
    throw RunFolderError("a rank on a node that is not listed");
  }
  return rank;
}

}  // namespace

std::string to_json(const RankTable& table) {
  Json stragglers = Json::array();
  for (const std::string& line : table.stragglers) stragglers.push_back(line);
  std::string text = Json::object({{"first_step", table.first_step},
                                   {"last_step", table.last_step},
                                   {"gather_s", number(table.gather_seconds)},
                                   {"stragglers", stragglers}})
                         .dump();
  text.pop_back();  // removes the brace; the rows follow, one per line
  text += ",\n\"nodes\": [";
  for (std::size_t i = 0; i < table.nodes.size(); ++i) {
    text += (i == 0 ? "\n" : ",\n") +
            Json::object({{"host", table.nodes[i].host},
                          {"link_bytes_per_s", number(table.nodes[i].bytes_per_second)}})
                .dump();
  }
  text += fmt::format(
      "],\n\"columns\": "
      "[\"node\",\"{}\",\"micro_batches\",\"compute_s\",\"wait_data_s\",\"comm_s\","
      "\"memory_bytes\",\"times_peers\"],\n\"ranks\": [",
      dimension_names("\",\""));
  for (std::size_t i = 0; i < table.ranks.size(); ++i) {
    const RankTimes& r = table.ranks[i];
    Json row = Json::array({r.node});
    for (const int index : r.place) row.push_back(index);
    row.push_back(r.micro_batches);
    for (const double seconds : {r.compute_seconds, r.wait_data_seconds, r.comm_seconds}) {
      row.push_back(number(seconds));
    }
    row.push_back(static_cast<std::int64_t>(r.memory_bytes));
    row.push_back(number(r.times_peers));
    text += (i == 0 ? "\n" : ",\n") + row.dump();
  }
  return text + "]}\n";
}

std::optional<RankTable> read_rank_table(const std::string& path) {
  const auto text = read_if_there(path, ExitStatus::kRunFolder);
  if (!text) return {};
  try {
    const Json object = Json::parse(*text);
    RankTable table;
    table.first_step = object.at("first_step").integer();
    table.last_step = object.at("last_step").integer();
    table.gather_seconds = object.at("gather_s").number();
    for (const Json& line : object.at("stragglers").items()) {
      table.stragglers.push_back(line.text());
    }
    for (const Json& node : object.at("nodes").items()) {
      table.nodes.push_back({node.at("host").text(), node.at("link_bytes_per_s").number()});
    }
    for (const Json& row : object.at("ranks").items()) {
      table.ranks.push_back(rank_of(row, table.nodes.size()));
    }
    if (table.ranks.empty()) return {};
    return table;
  } catch (const JsonError&) {
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
