// What run.same_bits means for this start.
#pragma once

#include <string>

#include "trireme/comm/communicator.h"
#include "trireme/config/config.h"

namespace trireme {

struct BitsOfStart {
  bool promise_broken = false;  // the run promised the same bits, and no longer does
  std::string said;             // a line for the user where something changed; else empty
};

// Collective over the world, before devices are chosen, because GPUs communicate by MPI only as
// long as the bits are kept, and before the run folder is held. Where this start goes on with a run
// that promised the same bits, a grid that breaks the promise is no mistake: machines were lost.
// Then keep_same_bits changes the configuration. Everywhere else it stays as it is, and
// resolve_run_grid refuses such a grid: at a fresh start, and where run.same_bits is new to a run
// that goes on. Throws RunFolderError.
BitsOfStart settle_same_bits(Communicator& world, Config& config);

// The checkpoints of a run that no longer keeps the promise have this attribute with this value, so
// that the next start knows of the promise.
inline constexpr const char* kBitsAttribute = "same_bits";
inline constexpr const char* kBitsBroken = "parted";

}  // namespace trireme
