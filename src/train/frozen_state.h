// What optim.freeze means for the state in a checkpoint and for the values of frozen weights.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <vector>

#include "trireme/io/checkpoint.h"
#include "trireme/parallel/stage.h"

namespace trireme {

// Between the run that wrote a checkpoint and one that goes on from it.
struct FrozenSince {
  std::set<std::string> thawed;  // parameters that train now: the checkpoint has no state of theirs
  std::int64_t dropped = 0;      // parameters that are frozen now: it has state of so many

  // Whether a tensor is state of a thawed parameter.
  bool lacks(const std::string& tensor) const;
  std::vector<std::string> lines() const;  // for the user
};
FrozenSince frozen_since(const Checkpoint& checkpoint, const nn::TrainedParameters& now);

// Collective over comm. Returns a line for the user where rounding to the compute type has changed
// the values of frozen parameters on a rank, whose names it has in `rounded`; empty if nowhere.
std::string words_on_rounding(Communicator& comm, const parallel::StageOptions& stage,
                              const std::set<std::string>& rounded);

}  // namespace trireme
