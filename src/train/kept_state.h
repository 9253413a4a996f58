// What a run takes of the optimizer's state in a checkpoint, and the values of frozen weights.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/io/checkpoint.h"
#include "trireme/optim/rule_choice.h"
#include "trireme/parallel/stage.h"

namespace trireme {

// Between the run that wrote a checkpoint and one that goes on from it, the rule of a parameter may
// have become another, or it was or is frozen.
struct KeptState {
  std::set<std::string, std::less<>> anew;  // parameters of this rank whose state begins anew
  // Whether StepState::updates counts from 0. The averages of all that have such a count
  // (optim::RuleKind) begin together then.
  bool counts_anew = false;
  std::vector<std::string> lines;  // for the user, the same on all ranks

  // Whether a tensor of a checkpoint is state that begins anew. (Averages of weights do not depend
  // on the rule.)
  bool lacks(std::string_view tensor) const;
};
// Collective over comm, the world.
KeptState kept_state(Communicator& comm, const Checkpoint& checkpoint, const parallel::Stage& stage,
                     const optim::OptimizerConfig& now);

// Collective over comm. Returns a line for the user where rounding to the compute type has changed
// the values of frozen parameters on a rank, whose names it has in `rounded`; empty if nowhere.
std::string words_on_rounding(Communicator& comm, const parallel::StageOptions& stage,
                              const std::set<std::string>& rounded);

}  // namespace trireme
