// The closed forms of the collectives: what is sent in which round.
#pragma once

#include <optional>
#include <vector>

#include "trireme/topology/prediction.h"

#include "topology/planning/tier_blocks.h"

namespace trireme {

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

// The rounds of an algorithm. They follow each other in each segment of the buffer, and the rounds
// of several segments overlap.
struct ClosedForm {
  std::vector<CommunicationRound> rounds = {};
  int segments = 1;
  bool abreast = false;  // all segments make each round together, which waits for one latency
};

// Returns the closed form of an algorithm on `bytes` in all (AlgorithmTable), or nothing if it has
// none here. Partial results of bf16 and fp16 do not count. `tiers_up` are those of a reduction's
// way up, `worthwhile` is CommunicatorPlan::worthwhile_bytes.
std::optional<ClosedForm> closed_form_of(Collective collective, Algorithm algorithm, int ranks,
                                         double bytes, const TierBlocks& tiers,
                                         const TierBlocks& tiers_up, double worthwhile);

}  // namespace trireme
