// What batch.micro was in the run that a start goes on with.
#pragma once

#include <optional>

#include "trireme/io/checkpoint.h"
#include "trireme/setup/settled_micro.h"

namespace trireme {

// `checkpoint` is the one to go on from. Returns nothing where the keys of this start decide
// batch.micro, and for a run that begins or whose configuration is not known. A checkpoint's
// configuration has the number that auto came to; that of an earlier version, whose default was 4,
// has that.
std::optional<MicroBefore> micro_before(const std::optional<Checkpoint>& checkpoint,
                                        const Config& config);

}  // namespace trireme
