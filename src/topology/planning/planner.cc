#include "trireme/topology/planner.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/text.h"
#include "trireme/comm/collective_tasks.h"

namespace trireme {
namespace {

// Sizes are powers of the square root of two.
constexpr int kLeastPower = 20, kMostPower = 56;
// What takes up to so many times the fastest is as fast. Measured times of short messages differ by
// more from job to job, for instance by which ranks share a core.
constexpr double kAsFast = 1.015, kShortAsFast = 1.08;
constexpr int kMostShortPower = 30;  // 32 KiB
// Where a closed form is coarse, some sizes are simulated, if that takes little time.
constexpr int kMostSimulated = 32;
constexpr int kMostSimulatedPower = 52, kSimulatedStep = 4;

std::size_t bytes_at(int power) {
  return static_cast<std::size_t>(std::exp2(power / 2.0));
}

// The logarithms of an algorithm's seconds at each power from kLeastPower on.
using Curve = std::vector<double>;

bool is_simulated(const Predictor& predictor, Collective collective, Algorithm algorithm) {
  return predictor.ranks() <= kMostSimulated && predictor.is_coarse(collective, algorithm);
}

// Simulates some sizes, and draws lines between them.
Curve simulated_curve(Predictor& predictor, Collective collective, Algorithm algorithm) {
  Curve curve(kMostPower - kLeastPower + 1);
  const auto at = [&](int power) -> double& {
    return curve[static_cast<std::size_t>(power - kLeastPower)];
  };
  for (int power = kLeastPower; power <= kMostSimulatedPower; power += kSimulatedStep) {
    at(power) = std::log(predictor.simulate(collective, algorithm, bytes_at(power)).seconds);
    for (int i = 1; power > kLeastPower && i < kSimulatedStep; ++i) {
      at(power - i) = at(power) + (at(power - kSimulatedStep) - at(power)) * i / kSimulatedStep;
    }
  }
  for (int power = kMostSimulatedPower + 1; power <= kMostPower; ++power) {
    at(power) = at(power - 1) + std::log(2.0) / 2;  // the bytes decide
  }
  return curve;
}

std::optional<Curve> predicted_curve(Predictor& predictor, Collective collective,
                                     Algorithm algorithm) {
  if (is_simulated(predictor, collective, algorithm)) {
    return simulated_curve(predictor, collective, algorithm);
  }
  Curve curve;
  for (int power = kLeastPower; power <= kMostPower; ++power) {
    const auto form = predictor.closed_form(collective, algorithm, bytes_at(power));
    if (!form) return {};
    curve.push_back(std::log(form->seconds));
  }
  return curve;
}

// An algorithm that may be chosen.
struct Timed {
  Algorithm algorithm;
  Curve curve;
  int turns;
  std::int64_t messages;
};

std::optional<Curve> curve_of(Predictor& predictor, Collective collective, Algorithm algorithm,
                              const std::vector<MeasuredError>& errors) {
  if (predictor.is_exchange(collective, algorithm)) return {};
  auto curve = predicted_curve(predictor, collective, algorithm);
  if (!curve) return curve;
  const int ranks = predictor.ranks(), partials = predictor.partials();
  for (int power = kLeastPower; power <= kMostPower; ++power) {
    double& seconds = (*curve)[static_cast<std::size_t>(power - kLeastPower)];
    const std::size_t bytes = bytes_at(power);
    if (whole_workspace(collective, algorithm, bytes, ranks) > kMostPlannedWorkspace) {
      seconds = std::numeric_limits<double>::infinity();
    } else if (!errors.empty()) {
      seconds = std::log(
          corrected(std::exp(seconds), errors, collective, algorithm, bytes, ranks, partials));
    }
  }
  return curve;
}

// Where the times of two algorithms meet, between a size and the next one: `before` and `after` are
// the logarithms of their ratio there. The size itself if they have met before.
std::size_t meeting_point(int power, double before, double after) {
  const double share = before > 0.0      ? 0.0
                       : before >= after ? 0.5
                                         : std::clamp(-before / (after - before), 0.0, 1.0);
  return static_cast<std::size_t>(std::exp2((power + share) / 2.0));
}

// Whether `one` is the better of two that are as fast. Every turn can be delayed. What delays short
// messages is mostly the hosts' own work, and each message is some.
bool is_better(const Timed& one, const Timed& other, bool short_messages) {
  if (short_messages && one.messages != other.messages) return one.messages < other.messages;
  return one.turns < other.turns;
}

// From the largest size down, where bytes decide: what is chosen there stays for smaller sizes, as
// long as nothing is clearly faster or, of short messages that were measured, better. Of several
// that are as fast, the best one is chosen, and of these the first in the order of kAlgorithms.
void add_rules(std::vector<AlgorithmTable::Rule>& rules, Collective collective,
               const std::vector<Timed>& all, bool measured) {
  std::vector<AlgorithmTable::Rule> found;  // the largest sizes first
  const Timed* chosen = nullptr;
  for (std::size_t i = all.front().curve.size(); i-- > 0;) {
    const bool is_short = measured && kLeastPower + static_cast<int>(i) <= kMostShortPower;
    double least = all.front().curve[i];
    for (const Timed& one : all) least = std::min(least, one.curve[i]);
    const double most = least + std::log(is_short ? kShortAsFast : kAsFast);
    const auto is_fast = [&](const Timed& one) { return one.curve[i] <= most; };
    const bool stays = chosen != nullptr && is_fast(*chosen);
    if (stays && !is_short) continue;
    const Timed* next = stays ? chosen : nullptr;
    for (const Timed& one : all) {
      if (is_fast(one) && (next == nullptr || is_better(one, *next, is_short))) next = &one;
    }
    if (next == chosen) continue;
    std::size_t up_to = AlgorithmTable::kAnySize;
    if (chosen != nullptr) {
      const auto ratio = [&](std::size_t at) { return next->curve[at] - chosen->curve[at]; };
      up_to = meeting_point(kLeastPower + static_cast<int>(i), ratio(i), ratio(i + 1));
    }
    found.push_back({collective, up_to, next->algorithm});
    chosen = next;
  }
  rules.insert(rules.end(), found.rbegin(), found.rend());
}

class Planner {
 public:
  Planner(JobNetwork network, bool any_order)
      : network_(std::move(network)), any_order_(any_order) {}

  CommunicatorPlan plan(const std::vector<int>& ranks) {
    const auto blocks = std::make_shared<const RankBlocks>(blocks_among(network_.blocks, ranks));
    const auto known = std::ranges::find(
        made_, *blocks,
        [](const CommunicatorPlan& plan) -> const RankBlocks& { return *plan.blocks; });
    if (known != made_.end()) return *known;
    const std::size_t worthwhile = worthwhile_bytes(*blocks, network_.rates);
    PredictedNetwork network(*blocks, network_.rates, worthwhile);
    made_.push_back({.algorithms = make_table(network.predictor, any_order_, network_.errors),
                     .blocks = blocks,
                     .worthwhile_bytes = worthwhile});
    return made_.back();
  }

 private:
  JobNetwork network_;
  bool any_order_;
  std::vector<CommunicatorPlan> made_;
};

}  // namespace

std::vector<Algorithm> choosable(Collective collective, bool any_order) {
  std::vector<Algorithm> result;
  for (const Algorithm algorithm : algorithms_of(collective)) {
    if (any_order || keeps_order(collective, algorithm)) result.push_back(algorithm);
  }
  return result;
}

std::size_t worthwhile_bytes(const RankBlocks& blocks, const NetworkRates& rates) {
  double most = 0.0;
  int below = blocks.ranks();
  for (int distance = 0; distance <= blocks.tiers(); ++distance) {
    const int own = distance < blocks.tiers() ? blocks.blocks(distance) : 1;
    if (own == below) continue;  // no two ranks are that far apart
    below = own;
    const auto known = std::min(static_cast<std::size_t>(distance), rates.distances.size() - 1);
    const DistanceRates& rate = rates.distances[known];
    most = std::max(most, (rate.latency + 2 * rates.costs.message) * rate.flow);
  }
  const auto bytes = static_cast<std::size_t>(std::clamp(2 * most, 4096.0, 1048576.0));
  return std::bit_floor(bytes + bytes / 2);  // up from 4/3 of a power on
}

PredictedNetwork::PredictedNetwork(const RankBlocks& blocks, const NetworkRates& rates)
    : PredictedNetwork(blocks, rates, worthwhile_bytes(blocks, rates)) {}

PredictedNetwork::PredictedNetwork(const RankBlocks& blocks, const NetworkRates& rates,
                                   std::size_t worthwhile_bytes)
    : tree(blocks, rates),
      predictor(tree, rates.costs, std::make_shared<const RankBlocks>(blocks), worthwhile_bytes) {}

std::optional<Prediction> predict(Predictor& predictor, Collective collective, Algorithm algorithm,
                                  std::size_t bytes) {
  if (algorithm == Algorithm::kLibrary) return {};
  if (is_simulated(predictor, collective, algorithm)) {
    return predictor.simulate(collective, algorithm, bytes);
  }
  return predictor.closed_form(collective, algorithm, bytes);
}

std::vector<Candidate> candidates(Predictor& predictor, Collective collective, std::size_t bytes,
                                  bool any_order) {
  std::vector<Candidate> result;
  for (const Algorithm algorithm : choosable(collective, any_order)) {
    auto prediction = predict(predictor, collective, algorithm, bytes);
    if (prediction) result.push_back({algorithm, std::move(*prediction)});
  }
  std::ranges::stable_sort(result, {}, [](const Candidate& one) { return one.prediction.seconds; });
  return result;
}

AlgorithmTable make_table(Predictor& predictor, bool any_order,
                          const std::vector<MeasuredError>& errors) {
  if (predictor.ranks() == 1) return AlgorithmTable();
  std::vector<AlgorithmTable::Rule> rules;
  for (const Collective collective : kCollectives) {
    std::vector<Timed> timed;
    for (const Algorithm algorithm : choosable(collective, any_order)) {
      if (collective == Collective::kExchange) continue;
      auto curve = curve_of(predictor, collective, algorithm, errors);
      if (!curve) continue;
      timed.push_back({algorithm, std::move(*curve), predictor.turns(collective, algorithm),
                       predictor.messages(collective, algorithm)});
    }
    if (!timed.empty()) add_rules(rules, collective, timed, !errors.empty());
  }
  return AlgorithmTable(std::move(rules));
}

NetworkRates assumed_rates(const RankBlocks& blocks, double node) {
  constexpr double kMemory = 10e9;
  NetworkRates rates{.distances = {{.latency = 5e-7, .flow = kMemory / 2, .host = kMemory}},
                     .costs = {.message = 2e-7, .reduced_byte = 1e-10}};
  double block = node;
  for (int distance = 1; distance <= std::max(blocks.tiers(), 1); ++distance) {
    DistanceRates far{.latency = 1e-6 * (distance + 1), .flow = node, .host = node};
    if (distance > 1) {
      // Nodes, or blocks of the tier below, that share the uplinks of an average block.
      const double inside = static_cast<double>(blocks.blocks(distance - 2)) /
                            static_cast<double>(blocks.blocks(distance - 1));
      block = std::max(block, block * inside / 2.0);
      far.block = block;
    }
    rates.distances.push_back(far);
  }
  return rates;
}

RankBlocks blocks_among(const RankBlocks& world, const std::vector<int>& ranks) {
  std::vector<std::vector<int>> tiers;
  for (int tier = 0; tier < world.tiers(); ++tier) {
    std::vector<int> blocks;
    for (const int rank : ranks) blocks.push_back(world.block(tier, rank));
    const bool one_block =
        std::ranges::count(blocks, blocks.front()) == static_cast<std::ptrdiff_t>(blocks.size());
    if (one_block && tier > 0) break;
    tiers.push_back(std::move(blocks));
  }
  return RankBlocks(static_cast<int>(ranks.size()), std::move(tiers));
}

CommunicatorPlanner make_planner(JobNetwork network, bool any_order) {
  const auto planner = std::make_shared<Planner>(std::move(network), any_order);
  return [planner](const std::string& /*name*/, const std::vector<int>& ranks) {
    return planner->plan(ranks);
  };
}

std::string table_text(const AlgorithmTable& table, int ranks) {
  std::string text;
  for (const Collective collective : kCollectives) {
    if (collective == Collective::kExchange) continue;
    std::string rules;
    for (const AlgorithmTable::Rule& rule : table.rules()) {
      if (rule.collective != collective || ranks > rule.up_to_ranks) continue;
      rules += (rules.empty() ? " " : ", ") + std::string(name_of(rule.algorithm));
      if (rule.up_to_bytes == AlgorithmTable::kAnySize) break;
      rules += " to " + size_text(rule.up_to_bytes);
    }
    if (rules.empty()) continue;
    text += (text.empty() ? "" : "; ") + std::string(name_of(collective)) + rules;
  }
  return text;
}

}  // namespace trireme
