#include "trireme/comm/algorithms.h"

#include <limits>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr std::size_t kSmall = std::size_t{32} << 10;
constexpr std::size_t kAny = std::numeric_limits<std::size_t>::max();

}  // namespace

std::string_view name_of(Algorithm algorithm) {
  switch (algorithm) {
    case Algorithm::kDirect:
      return "direct";
    case Algorithm::kPairwise:
      return "pairwise";
    case Algorithm::kLibrary:
      return "library";
  }
  throw InternalError("unknown algorithm");
}

AlgorithmTable::AlgorithmTable() {
  for (const Collective collective :
       {Collective::kAllReduce, Collective::kReduceScatter, Collective::kAllGather,
        Collective::kBroadcast, Collective::kAllToAll}) {
    rules_.push_back({collective, kSmall, Algorithm::kDirect});
    rules_.push_back({collective, kAny, Algorithm::kPairwise});
  }
}

Algorithm AlgorithmTable::choose(Collective collective, std::size_t bytes) const {
  for (const Rule& rule : rules_) {
    if (rule.collective == collective && bytes <= rule.up_to_bytes) return rule.algorithm;
  }
  return Algorithm::kPairwise;  // suits any size
}

}  // namespace trireme
