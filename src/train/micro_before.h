// What batch.micro was in the run that a start goes on with.
#pragma once

#include <optional>

#include "trireme/comm/communicator.h"
#include "trireme/setup/settled_micro.h"

namespace trireme {

// Collective over the world, before the run folder is held. Returns nothing where the keys of this
// start decide batch.micro, and for a run that begins or whose configuration is not known. A
// checkpoint's configuration has the number that auto came to; that of an earlier version, whose
// default was 4, has that. Throws RunFolderError.
std::optional<MicroBefore> micro_before(Communicator& world, const Config& config);

}  // namespace trireme
