// Which algorithm carries which collective at which size. The topology module fills the table;
// the default suits one node.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <string_view>
#include <vector>

namespace trireme {

enum class Collective { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll, kExchange };
inline constexpr std::array kCollectives = {Collective::kAllReduce, Collective::kReduceScatter,
                                            Collective::kAllGather, Collective::kBroadcast,
                                            Collective::kAllToAll,  Collective::kExchange};
std::string_view name_of(Collective collective);  // as in Communicator

enum class Algorithm {
  kDirect,    // every rank exchanges with every other at once; fewest steps for small messages
  kPairwise,  // reduce-scatter by direct exchange, then all-gather: each byte moves twice
  kBruck,     // log2(ranks) rounds that bring all to all: bytes x ranks, in the fewest messages
  kDoubling,  // log2(ranks) rounds of recursive doubling: bytes x log2(ranks); all_reduce alone
  kLibrary,   // MPI's own algorithm; its order of reduction is the library's
};
std::string_view name_of(Algorithm algorithm);

class AlgorithmTable {
 public:
  struct Rule {
    Collective collective;
    std::size_t up_to_bytes;  // of the whole buffer; rules of one collective stand in rising order
    Algorithm algorithm;
    int up_to_ranks = std::numeric_limits<int>::max();
  };

  // Among so few all messages at once are done sooner than rounds that wait for each other.
  static constexpr int kFewRanks = 8;

  // Among few ranks kDirect up to 32 KiB, kPairwise above. Among more kDoubling for an all_reduce
  // of up to 256 KiB, kBruck for an all_gather of up to 4 MiB, and kPairwise above these.
  AlgorithmTable();
  explicit AlgorithmTable(std::vector<Rule> rules) : rules_(std::move(rules)) {}

  // The first rule that fits.
  Algorithm choose(Collective collective, std::size_t bytes, int ranks) const;
  bool names(Algorithm algorithm) const;  // in some rule
  const std::vector<Rule>& rules() const { return rules_; }

 private:
  std::vector<Rule> rules_;
};

}  // namespace trireme
