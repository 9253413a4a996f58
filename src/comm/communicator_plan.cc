#include "trireme/comm/communicator_plan.h"

#include <cstdint>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"

namespace trireme {

std::string plan_to_text(const CommunicatorPlan& plan) {
  Json rules = Json::array();
  for (const AlgorithmTable::Rule& rule : plan.algorithms.rules()) {
    rules.push_back(Json::array({static_cast<int>(rule.collective), std::uint64_t{rule.up_to_bytes},
                                 static_cast<int>(rule.algorithm), rule.up_to_ranks}));
  }
  Json text = Json::object(
      {{"rules", std::move(rules)}, {"worthwhile_bytes", std::uint64_t{plan.worthwhile_bytes}}});
  if (plan.blocks) {
    Json tiers = Json::array();
    for (int tier = 0; tier < plan.blocks->tiers(); ++tier) {
      Json blocks = Json::array();
      for (int rank = 0; rank < plan.blocks->ranks(); ++rank) {
        blocks.push_back(plan.blocks->block(tier, rank));
      }
      tiers.push_back(std::move(blocks));
    }
    text["ranks"] = plan.blocks->ranks();
    text["tiers"] = std::move(tiers);
  }
  return text.dump();
}

CommunicatorPlan plan_from_text(std::string_view text) {
  try {
    const Json plan = Json::parse(text);
    std::vector<AlgorithmTable::Rule> rules;
    for (const Json& rule : plan.at("rules").items()) {
      rules.push_back({static_cast<Collective>(rule.at(0).small_integer()),
                       static_cast<std::size_t>(rule.at(1).unsigned_integer()),
                       static_cast<Algorithm>(rule.at(2).small_integer()),
                       rule.at(3).small_integer()});
    }
    CommunicatorPlan result{.algorithms = AlgorithmTable(std::move(rules)),
                            .worthwhile_bytes = static_cast<std::size_t>(
                                plan.at("worthwhile_bytes").unsigned_integer())};
    if (plan.find("tiers") != nullptr) {
      std::vector<std::vector<int>> tiers;
      for (const Json& tier : plan.at("tiers").items()) {
        tiers.emplace_back();
        for (const Json& block : tier.items()) tiers.back().push_back(block.small_integer());
      }
      result.blocks = std::make_shared<RankBlocks>(plan.at("ranks").small_integer(), tiers);
    }
    return result;
  } catch (const JsonError& error) {
    throw InternalError(fmt::format("the plan of a communicator is damaged: {}", error.what()));
  }
}

}  // namespace trireme
