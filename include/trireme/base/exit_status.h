// The statuses with which every trireme command ends (documented in README.md).
#pragma once

namespace trireme {

enum class ExitStatus : int {
  kDone = 0,
  kUsage = 2,       // usage or configuration
  kData = 3,        // a data set is missing, malformed or of another kind
  kCheckpoint = 4,  // a checkpoint is missing, malformed or of another model
  kRunFolder = 5,   // unwritable, full, or in use by another job
  kDiverged = 6,    // too many steps with non-finite gradients
  kInternal = 70,   // a fault of the program itself
  kDevice = 71,     // device fault or out of memory
  kRequeue = 75,    // stopped on purpose, with a checkpoint: requeue me
  kHangOrLostRank = 76,
};

}  // namespace trireme
