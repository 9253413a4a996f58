// What `trireme train` does.
#pragma once

#include <optional>

#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"
#include "trireme/setup/compute_device.h"
#include "trireme/train/signals.h"

namespace trireme {

// Collective over the world. Trains as `config` says, going on from the run folder's newest good
// checkpoint unless told otherwise. Returns kDone, or kRequeue where a signal or the job's time
// limit stopped it after a checkpoint. Throws the Errors of what it uses, and DivergedError after
// 10 steps in a row with non-finite gradients, not counting those that the search for an fp16 loss
// scale expects, and where a checkpoint after such a step would have weights that are not finite.
// `device`: the one that the caller has already chosen according to `config`.
ExitStatus train(Runtime& runtime, const Config& config, const StopSignals& signals,
                 std::optional<ComputeDevice> device = {});

}  // namespace trireme
