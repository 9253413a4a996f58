// Which algorithm carries which collective at which size. The topology module fills the table;
// the default suits one node.
#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

namespace trireme {

enum class Collective { kAllReduce, kReduceScatter, kAllGather, kBroadcast, kAllToAll };

enum class Algorithm {
  kDirect,    // every rank exchanges with every other at once; fewest steps for small messages
  kPairwise,  // reduce-scatter by direct exchange, then all-gather: each byte moves twice
  kLibrary,   // MPI's own algorithm; its order of reduction is the library's
};
std::string_view name_of(Algorithm algorithm);

class AlgorithmTable {
 public:
  struct Rule {
    Collective collective;
    std::size_t up_to_bytes;  // of the whole buffer; rules of one collective stand in rising order
    Algorithm algorithm;
  };

  AlgorithmTable();  // kDirect up to 32 KiB, kPairwise above
  explicit AlgorithmTable(std::vector<Rule> rules) : rules_(std::move(rules)) {}

  Algorithm choose(Collective collective, std::size_t bytes) const;
  const std::vector<Rule>& rules() const { return rules_; }

 private:
  std::vector<Rule> rules_;
};

}  // namespace trireme
