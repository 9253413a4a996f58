// What the messages of a round cost on a network, whatever their bytes are.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <utility>
#include <vector>

#include "trireme/comm/rank_blocks.h"
#include "trireme/comm/sum_tree.h"
#include "trireme/topology/network.h"

#include "topology/planning/rounds.h"
#include "topology/planning/tier_blocks.h"

namespace trireme {

struct RoundShape {
  double latency = 0.0;       // the longest of its messages
  double flow = 0.0;          // seconds for a byte of the slowest message on links of its own
  std::int64_t messages = 0;  // of all ranks
  int ends = 0;               // messages that a rank sends and receives
  std::vector<std::pair<int, double>> links = {};  // seconds for a byte of each message
  double busiest = 0.0;                            // of these
  double reduced = 1.0;  // the share of a round's `reduced` that the busiest rank adds
};

// Makes the shape of each pattern of messages once.
class RoundShapes {
 public:
  using Pattern = CommunicationRound::Pattern;

  // The network, the blocks and the tiers must outlive it; `blocks` may be nullptr. `latency` is
  // that of a message where the network knows none. `tiers_up` as for closed_form_of.
  RoundShapes(const TreeNetwork& network, double latency, const RankBlocks* blocks,
              const TierBlocks& tiers, const TierBlocks& tiers_up);

  const RoundShape& of(Pattern pattern, int step);

 private:
  // Adds the messages of a pattern to a shape. `forth` tells the two patterns apart whose messages
  // go between the same ranks.
  using Load = void (RoundShapes::*)(RoundShape& shape, int step, bool forth);
  struct Row {
    Pattern pattern;
    Load load;
    bool forth = true;
  };
  static const Row& row_of(Pattern pattern);
  RoundShape make(Pattern pattern, int step);
  // A message of `weight` times the round's bytes.
  void load(RoundShape& shape, int from, int to, double weight = 1.0);

  void load_shift(RoundShape& shape, int step, bool);
  void load_xor(RoundShape& shape, int step, bool);
  void load_halves(RoundShape& shape, int step, bool join);
  void load_pairs(RoundShape& shape, int, bool fold);
  void load_ring(RoundShape& shape, int, bool);
  void load_everyone(RoundShape& shape, int, bool);
  void load_tier(RoundShape& shape, int hop, bool);
  void load_tree(RoundShape& shape, int depth, bool);
  void load_gifts(RoundShape& shape, int hop, bool up);
  // What the ranks of one block have for those of another.
  struct Gift {
    const std::vector<int>&from, &to;
    int values;          // partial results, or 1 for the parts themselves
    std::size_t shares;  // blocks of the same block above, which share all parts
  };
  struct RankTotals {
    std::vector<int> ends;      // messages of each rank
    std::vector<double> added;  // times the round's bytes, which each rank adds
  };
  void load_gift(RoundShape& shape, const Gift& gift, RankTotals& totals);
  void load_star(RoundShape& shape, int hop, bool);
  void load_chain(RoundShape& shape, int, bool);
  void load_inside(RoundShape& shape, int, bool own);
  void load_across(RoundShape& shape, int, bool);

  const TreeNetwork& network_;
  double latency_;
  int ranks_;
  SumTree tree_;
  const TierBlocks &tiers_, &tiers_up_;
  std::vector<int> order_;     // of the ring
  std::vector<double> loads_;  // by link: messages of the shape that is made
  std::vector<int> loaded_, route_;
  std::map<std::pair<Pattern, int>, RoundShape> shapes_;
};

}  // namespace trireme
