// The closed forms of the collectives: what is sent in which round.
#pragma once

#include <optional>
#include <vector>

#include "trireme/topology/prediction.h"

#include "topology/planning/tier_blocks.h"

namespace trireme {

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
