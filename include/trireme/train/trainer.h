// What `trireme train` does.
#pragma once

#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"
#include "trireme/train/signals.h"

namespace trireme {

// Trains as `config` says, going on from the run folder's newest good checkpoint unless told
// otherwise. Collective over the world. kDone; kRequeue where a signal stopped it, with a
// checkpoint. Throws the Errors of what it uses; DivergedError after too many steps with non-finite
// gradients.
ExitStatus train(Runtime& runtime, const Config& config, const StopSignals& signals);

}  // namespace trireme
