#include "trireme/comm/algorithms.h"

#include <algorithm>
#include <iterator>
#include <utility>

#include "trireme/base/error.h"
#include "trireme/comm/bus_factor.h"

namespace trireme {
namespace {

constexpr std::size_t kSmall = std::size_t{32} << 10;
constexpr std::size_t kSmallGathered = std::size_t{4} << 20;
// The size where sending log2(ranks) times the bytes begins to cost more than 2 (ranks - 1)
// messages. For 16 to thousands of ranks it is between 0.3 and 3 MB, at 1 us a message and 10 GB/s.
constexpr std::size_t kSmallDoubled = std::size_t{256} << 10;
// A ring adds 2 (ranks - 1) messages one after another, and needs parts that are worth them.
constexpr std::size_t kBelowRing = std::size_t{4} << 20;
constexpr int kRingRanks = 64;

}  // namespace

std::optional<Algorithm> algorithm_named(std::string_view name) {
  const auto found = std::ranges::find(kAlgorithms, name, [](Algorithm a) { return name_of(a); });
  if (found == kAlgorithms.end()) return {};
  return *found;
}

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kDirect:
      return "direct";
    case Algorithm::kPairwise:
      return "pairwise";
    case Algorithm::kStepwise:
      return "stepwise";
    case Algorithm::kBruck:
      return "bruck";
    case Algorithm::kDoubling:
      return "doubling";
    case Algorithm::kHalving:
      return "halving";
    case Algorithm::kBinomial:
      return "binomial";
    case Algorithm::kChain:
      return "chain";
    case Algorithm::kTiered:
      return "tiered";
    case Algorithm::kRing:
      return "ring";
    case Algorithm::kLibrary:
      return "library";
  }
  throw InternalError("unknown algorithm");
}

bool keeps_order(Algorithm algorithm) {
  return algorithm != Algorithm::kRing && algorithm != Algorithm::kLibrary;
}

bool keeps_order(Collective collective, Algorithm algorithm) {
  const bool adds =
      collective == Collective::kAllReduce || collective == Collective::kReduceScatter;
  return !adds || keeps_order(algorithm);
}

double whole_workspace(Collective collective, Algorithm algorithm, std::size_t bytes, int ranks) {
  const auto whole = static_cast<double>(bytes);
  const bool gathers = algorithm == Algorithm::kDirect || algorithm == Algorithm::kBruck;
  if (gathers && collective == Collective::kAllReduce) return whole * ranks;
  if (algorithm == Algorithm::kBruck) return collective == Collective::kAllGather ? whole : 0.0;
  return algorithm == Algorithm::kDoubling ? 4 * whole : 0.0;  // bf16 and fp16 are widened
}

std::string_view name_of(Collective collective) {
  switch (collective) {
    case Collective::kAllReduce:
      return "all_reduce";
    case Collective::kReduceScatter:
      return "reduce_scatter";
    case Collective::kAllGather:
      return "all_gather";
    case Collective::kBroadcast:
      return "broadcast";
    case Collective::kAllToAll:
      return "all_to_all";
    case Collective::kExchange:
      return "exchange";
  }
  throw InternalError("unknown collective");
}

std::optional<Collective> collective_named(std::string_view name) {
  for (const Collective collective : kCollectives) {
    if (collective != Collective::kExchange && name_of(collective) == name) return collective;
  }
  return {};
}

AlgorithmTable::AlgorithmTable() {
  for (const Collective collective : kCollectives) {
    rules_.push_back({collective, kSmall, Algorithm::kDirect, kFewRanks});
    rules_.push_back({collective, AlgorithmTable::kAnySize, Algorithm::kPairwise, kFewRanks});
  }
  rules_.push_back({Collective::kAllReduce, kSmallDoubled, Algorithm::kDoubling});
  rules_.push_back({Collective::kAllGather, kSmallGathered, Algorithm::kBruck});
  for (const Collective collective : kCollectives) {
    rules_.push_back({collective, AlgorithmTable::kAnySize, Algorithm::kPairwise});
  }
}

Algorithm AlgorithmTable::choose(Collective collective, std::size_t bytes, int ranks) const {
  for (const Rule& rule : rules_) {
    if (rule.collective == collective && bytes <= rule.up_to_bytes && ranks <= rule.up_to_ranks)
      return rule.algorithm;
  }
  return Algorithm::kPairwise;  // suits any size
}

Algorithm AlgorithmTable::choose_own(Collective collective, std::size_t bytes, int ranks) const {
  const Algorithm chosen = choose(collective, bytes, ranks);
  return chosen == Algorithm::kLibrary ? AlgorithmTable().choose(collective, bytes, ranks) : chosen;
}

AlgorithmTable AlgorithmTable::any_order() {
  const AlgorithmTable usual;
  std::vector<Rule> rules;
  for (const Rule& rule : usual.rules()) {
    if (trireme::keeps_order(rule.collective, Algorithm::kRing) ||
        rule.up_to_bytes != AlgorithmTable::kAnySize) {
      rules.push_back(rule);
      continue;
    }
    const auto ranks = std::min(rule.up_to_ranks, kRingRanks);
    rules.push_back({rule.collective, kBelowRing, rule.algorithm, ranks});
    rules.push_back({rule.collective, AlgorithmTable::kAnySize, Algorithm::kRing, ranks});
    rules.push_back(rule);
  }
  return AlgorithmTable(std::move(rules));
}

AlgorithmTable AlgorithmTable::with(Collective collective, std::size_t first, std::size_t last,
                                    Algorithm algorithm, int ranks) const {
  std::vector<Rule> others, before, after;
  for (const Rule& rule : rules_) {
    if (rule.collective != collective) {
      others.push_back(rule);
    } else if (ranks <= rule.up_to_ranks) {
      before.push_back(rule);
    }
  }
  before.push_back(
      {collective, AlgorithmTable::kAnySize, Algorithm::kPairwise});  // as choose() has it
  const auto add = [&](std::size_t up_to_bytes, Algorithm named) {
    if (!after.empty() && up_to_bytes <= after.back().up_to_bytes) return;
    if (!after.empty() && after.back().algorithm == named) {
      after.back().up_to_bytes = up_to_bytes;
    } else {
      after.push_back({collective, up_to_bytes, named});
    }
  };
  if (first > 0) {
    for (const Rule& rule : before) add(std::min(rule.up_to_bytes, first - 1), rule.algorithm);
  }
  add(last, algorithm);
  for (const Rule& rule : before) add(rule.up_to_bytes, rule.algorithm);
  std::ranges::move(after, std::back_inserter(others));
  return AlgorithmTable(std::move(others));
}

bool AlgorithmTable::keeps_order() const {
  return std::ranges::all_of(rules_, [](const Rule& rule) {
    return trireme::keeps_order(rule.collective, rule.algorithm);
  });
}

double bus_factor(Collective op, int ranks) {
  const double n = ranks;
  switch (op) {
    case Collective::kAllReduce:
      return 2.0 * (n - 1.0) / n;
    case Collective::kReduceScatter:
    case Collective::kAllGather:
    case Collective::kAllToAll:
      return (n - 1.0) / n;
    case Collective::kBroadcast:
    case Collective::kExchange:
      break;
  }
  return 1.0;
}

}  // namespace trireme
