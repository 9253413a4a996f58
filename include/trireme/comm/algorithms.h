// The algorithm of each collective at each size. The topology module fills the table; the default
// suits one node.
#pragma once

#include <array>
#include <cstddef>
#include <limits>
#include <optional>
#include <string_view>
#include <vector>

namespace trireme {

enum class Collective { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll, kExchange };
inline constexpr std::array kCollectives = {Collective::kAllReduce, Collective::kReduceScatter,
                                            Collective::kAllGather, Collective::kBroadcast,
                                            Collective::kAllToAll,  Collective::kExchange};
std::string_view name_of(Collective collective);  // as in Communicator
// The collective of that name. Nothing for kExchange, which no algorithm carries.
std::optional<Collective> collective_named(std::string_view name);

enum class Algorithm {
  kDirect,    // every rank exchanges with every other at once; fewest steps for small messages
  kPairwise,  // reduce-scatter by direct exchange, then all-gather: each byte moves twice
  kStepwise,  // the same with one partner at a time, so that fewer streams share a link
  kBruck,     // log2(ranks) rounds gather all on every rank: bytes x ranks, in the fewest messages
  kDoubling,  // log2(ranks) rounds of recursive doubling: bytes x log2(ranks); only for all_reduce
  kHalving,   // recursive halving and doubling: bytes x 2 in 2 log2(ranks) rounds, most of them
              // between neighbours
  kBinomial,  // along a binomial tree, in segments: bytes x log2(ranks) at the root
  kChain,     // from rank to rank in the order of the network, in segments; only for broadcast
  kTiered,  // within nodes, then between nodes, then between leaf switches, in segments: each byte
            // crosses the links above a block of ranks as few times as possible
  kRing,    // around a ring in the order of the network: bytes x 2 in 2 (ranks - 1) rounds; adds in
            // the order of the ring
  kLibrary,  // MPI's own algorithm; MPI decides which one, and the order of the reduction
};
inline constexpr std::array kAlgorithms = {
    Algorithm::kDirect,   Algorithm::kPairwise, Algorithm::kStepwise, Algorithm::kBruck,
    Algorithm::kDoubling, Algorithm::kHalving,  Algorithm::kBinomial, Algorithm::kChain,
    Algorithm::kTiered,   Algorithm::kRing,     Algorithm::kLibrary};
std::string_view name_of(Algorithm algorithm);
std::optional<Algorithm> algorithm_named(std::string_view name);

// Whether a reduction by this algorithm adds along the tree T(ranks), so that its bits are those of
// all others that do.
bool keeps_order(Algorithm algorithm);
// Whether the algorithm of this collective may be changed without changing a bit: always, where
// nothing is added.
bool keeps_order(Collective collective, Algorithm algorithm);
// About how many bytes an algorithm of ours needs besides the buffers of a call of so many bytes;
// 0 for those that work in segments, whose memory is bounded.
double whole_workspace(Collective collective, Algorithm algorithm, std::size_t bytes, int ranks);

class AlgorithmTable {
 public:
  static constexpr std::size_t kAnySize = std::numeric_limits<std::size_t>::max();

  struct Rule {
    Collective collective;
    std::size_t up_to_bytes;  // of the whole buffer; rules of a collective are in rising order
    Algorithm algorithm;
    int up_to_ranks = std::numeric_limits<int>::max();
  };

  // Up to this many ranks, sending all messages at once is faster than rounds that wait for each
  // other.
  static constexpr int kFewRanks = 8;

  // For up to kFewRanks ranks: kDirect up to 32 KiB, kPairwise above. For more ranks: kDoubling for
  // an all_reduce of up to 256 KiB, kBruck for an all_gather of up to 4 MiB, and kPairwise above
  // these sizes.
  AlgorithmTable();
  explicit AlgorithmTable(std::vector<Rule> rules) : rules_(std::move(rules)) {}

  // Returns the algorithm of the first rule that fits; kPairwise if none does.
  Algorithm choose(Collective collective, std::size_t bytes, int ranks) const;
  // Chooses as choose() does, for what MPI's own algorithm cannot carry: where the rule takes that
  // one, the default table decides.
  Algorithm choose_own(Collective collective, std::size_t bytes, int ranks) const;
  // The table of runs that do not ask for T(ranks): the default one, but kRing for reductions of
  // more than 4 MiB among up to 64 ranks.
  static AlgorithmTable any_order();

  // Returns the table for so many ranks, but with this algorithm from `first` to `last` bytes.
  AlgorithmTable with(Collective collective, std::size_t first, std::size_t last,
                      Algorithm algorithm, int ranks) const;

  bool keeps_order() const;  // whether the algorithms of all rules do
  const std::vector<Rule>& rules() const { return rules_; }

 private:
  std::vector<Rule> rules_;
};

}  // namespace trireme
