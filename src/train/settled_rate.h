// The learning rate of a run that begins with trained weights.
#pragma once

#include <optional>
#include <string>

#include "trireme/config/config.h"
#include "trireme/io/checkpoint.h"

namespace trireme {

// What the keys left open, and the run settled at its first start.
struct SettledRate {
  std::string keys;  // "optim.lr schedule.warmup", or one of them, or nothing: kSettledAttribute
  std::string said;  // a line for the user; empty: nothing was settled
};

// Whether settle_rate needs to know the checkpoint that a start goes on from.
bool may_have_settled_rate(const Config& config);

// A decoder with AdamW that begins with an import or with run.start_from has a peak of 2e-5 and a
// warm-up of 3 % of the run, where the keys do not give them: what suits initial values soon undoes
// what such weights know. `checkpoint` is the one to go on from, if any. A run that goes on keeps
// what it recorded: checkpoints that a run writes itself no longer tell that it began so. Call it
// when epochs are steps. Throws ConfigError where the warm-up leaves too little of the run.
SettledRate settle_rate(const std::optional<Checkpoint>& checkpoint, Config& config);

// The attribute of checkpoints that names what the run settled: SettledRate::keys.
inline constexpr const char* kSettledAttribute = "settled_at_start";

}  // namespace trireme
