// The time that a collective takes on a network, predicted.
#pragma once

#include <cstddef>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/comm/algorithms.h"
#include "trireme/comm/segments.h"
#include "trireme/topology/network.h"
#include "trireme/topology/simulated_world.h"

namespace trireme {

struct ClosedForm;
struct TierBlocks;

// One step of an algorithm: messages that go at once, between ranks that depend on the step.
struct CommunicationRound {
  enum class Pattern {
    kShift,     // rank r to rank r + step, around
    kXor,       // terms of T(ranks) whose numbers differ in the bit `step` to each other
    kJoin,      // of these, those with the bit to those without
    kSpread,    // the other way
    kEveryone,  // every rank to every other
    kFold,      // in each pair that T(ranks) begins with, to the rank that stands for it
    kUnfold,    // the other way
    kRing,      // each rank to the next one in the order of the network
    kTier,  // each rank to its likes in the other blocks, `step` tiers up, of the same block above
    kTree,  // ranks whose numbers, counted from the root, have `step` bits set, to all that have
            // one more, below the lowest of these bits
    // For ranks in any blocks, of which `bytes` is what all parts together take:
    kGiveUp,    // the ranks of each block, `step` tiers up, to those of the others in the same
                // block above: their partial results of the parts that these represent there
    kGiveDown,  // the ranks of each such block to those of the others: the parts that they have
    kStar,      // the first rank of the first such block to that of each other one
    kChain,     // each rank to the next one in the order of the network, one after the other
    // For an all-to-all through one rank of each node for each other node; `bytes` is what a rank
    // has for another:
    kGather,   // each rank to the others of its node: what they pass on, and what is for them
    kCross,    // nodes to each other, one message
    kHandOut,  // as kGather, without what is for the ranks themselves
  };
  Pattern pattern;
  int step = 0;
  double bytes = 0.0;    // of a message
  double reduced = 0.0;  // bytes that a rank adds afterwards
  double copied = 0.0;   // bytes that it copies in its memory while nothing is sent
  int repeats = 1;       // such rounds follow each other
};

struct Prediction {
  double seconds = 0.0;
  bool simulated = false;  // or else by the closed form
  // The link that carries messages for the largest share of the time, and that share. Empty if
  // there are no links.
  std::string link = {};
  double share = 0.0;
};

// Predicts the times of collectives among the ranks of one communicator.
class Predictor {
 public:
  // The network must outlive the predictor. Algorithms know `blocks` and `worthwhile_bytes`
  // (CommunicatorPlan), as they do in production; nullptr: they know nothing of the ranks' places.
  Predictor(const TreeNetwork& network, const SimulatedCosts& costs,
            std::shared_ptr<const RankBlocks> blocks,
            std::size_t worthwhile_bytes = kWorthwhileBytes);

  int ranks() const { return network_.ranks(); }
  // The partial results of a tiered reduction, in all: the whole subtrees of T(ranks) in each block
  // of each tier. The fewest if ranks are in the order of the fabric.
  int partials() const;

  // Each round takes its latency, the time of its messages at both ends, the bytes on its busiest
  // link, and its additions. Segments overlap until a link or a rank is always busy. Returns
  // nothing for an algorithm without a closed form.
  std::optional<Prediction> closed_form(Collective collective, Algorithm algorithm,
                                        std::size_t bytes);
  // Whether that is the coarse form of a tiered reduction or gather (TierBlocks::sizes).
  bool is_coarse(Collective collective, Algorithm algorithm) const;
  // Whether a tiered reduce-scatter is here an exchange of everyone with everyone, as pairwise is
  // with less ado: where ranks are placed so that no block adds anything up.
  bool is_exchange(Collective collective, Algorithm algorithm) const;
  // Runs the tasks of production in a simulated world. `bytes` is rounded up to whole elements of
  // fp32 for every rank.
  Prediction simulate(Collective collective, Algorithm algorithm, std::size_t bytes);
  // How often a rank waits for others before it can go on with a segment, as the closed form counts
  // it: once in an exchange at once. Without a closed form, it is as many as there are ranks.
  int turns(Collective collective, Algorithm algorithm) const;
  // The messages of all ranks in a segment, as the closed form counts them; ranks^2 without one.
  std::int64_t messages(Collective collective, Algorithm algorithm);

 private:
  // What a round costs, whatever its bytes are.
  struct Shape {
    double latency = 0.0;       // the longest of its messages
    double flow = 0.0;          // seconds for a byte of the slowest message on links of its own
    std::int64_t messages = 0;  // of all ranks
    int ends = 0;               // messages that a rank sends and receives
    std::vector<std::pair<int, double>> links = {};  // seconds for a byte of each message
    double busiest = 0.0;                            // of these
    double reduced = 1.0;  // the share of a round's `reduced` that the busiest rank adds
  };
  std::optional<ClosedForm> form_of(Collective collective, Algorithm algorithm, double bytes) const;
  const Shape& shape_of(CommunicationRound::Pattern pattern, int step);
  Shape make_shape(CommunicationRound::Pattern pattern, int step);
  Shape everyone() const;
  // A message of `weight` times the round's bytes.
  void load(Shape& shape, int from, int to, double weight = 1.0);
  void load_tier(Shape& shape, int hop);
  void load_tree(Shape& shape, int depth);
  void load_gifts(Shape& shape, int hop, bool up);
  void load_star(Shape& shape, int hop);
  void load_chain(Shape& shape);
  void load_inside(Shape& shape, bool own);
  void load_across(Shape& shape);
  double own_seconds(const CommunicationRound& round, const Shape& shape) const;
  Prediction described(double seconds, const std::vector<double>& busy) const;

  const TreeNetwork& network_;
  SimulatedCosts costs_;
  std::shared_ptr<const RankBlocks> blocks_;
  std::size_t worthwhile_bytes_;
  std::shared_ptr<const TierBlocks> tiers_, sum_tiers_;  // the latter on the way up of a reduction
  std::vector<int> order_;                               // of the ring
  std::vector<double> loads_;  // by link: messages of the shape that is made
  std::vector<int> loaded_, route_;
  std::map<std::pair<CommunicationRound::Pattern, int>, Shape> shapes_;
};

}  // namespace trireme
