#include "trireme/comm/algorithms.h"

#include <limits>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr std::size_t kSmall = std::size_t{32} << 10;
constexpr std::size_t kSmallGathered = std::size_t{4} << 20;
constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kDirect:
      return "direct";
    case Algorithm::kPairwise:
      return "pairwise";
    case Algorithm::kBruck:
      return "bruck";
    case Algorithm::kLibrary:
      return "library";
  }
  throw InternalError("unknown algorithm");
}

AlgorithmTable::AlgorithmTable() {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
        Collective::kBroadcast, Collective::kAllToAll}) {
    const std::size_t small = collective == Collective::kAllGather ? kSmallGathered : kSmall;
    rules_.push_back({collective, kSmall, Algorithm::kDirect, kFewRanks});
    rules_.push_back({collective, kAny, Algorithm::kPairwise, kFewRanks});
    rules_.push_back({collective, small, Algorithm::kBruck});
    rules_.push_back({collective, kAny, Algorithm::kPairwise});
  }
}

Algorithm AlgorithmTable::choose(Collective collective, std::size_t bytes, int ranks) const {
  for (const Rule& rule : rules_) {
    if (rule.collective == collective && bytes <= rule.up_to_bytes && ranks <= rule.up_to_ranks)
      return rule.algorithm;
  }
  return Algorithm::kPairwise;  // suits any size
}

}  // namespace trireme
