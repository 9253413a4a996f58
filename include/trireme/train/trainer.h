// What `trireme train` does.
#pragma once

#include "trireme/comm/runtime.h"
#include "trireme/config/config.h"
#include "trireme/train/compute_device.h"
#include "trireme/train/signals.h"

namespace trireme {

// Trains as `config` says, going on from the run folder's newest good checkpoint unless told
// otherwise. Collective over the world. kDone; kRequeue where a signal stopped it, with a
// checkpoint. Throws the Errors of what it uses; DivergedError after too many steps with non-finite
// gradients.
ExitStatus train(Runtime& runtime, const Config& config, const StopSignals& signals);
// The same on the device that `config` asks for, where it has been chosen already.
ExitStatus train(Runtime& runtime, const Config& config, const StopSignals& signals,
                 ComputeDevice device);

}  // namespace trireme
