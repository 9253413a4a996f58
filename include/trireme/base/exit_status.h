// The exit statuses of every trireme command (documented in README.md).
#pragma once

#include <array>
#include <utility>

namespace trireme {

enum class ExitStatus : int {
  kDone = 0,
  kUsage = 2,
  kData = 3,
  kCheckpoint = 4,
  kRunFolder = 5,
  kDiverged = 6,
  kInternal = 70,
  kDevice = 71,
  kRequeue = 75,
  kHangOrLostRank = 76,
  kInterruptedTwice = 130,  // as a shell counts a process that SIGINT ended
};

// These are the words of src/cli/README.md.
inline constexpr std::array kExitStatusMeanings = {
    std::pair{ExitStatus::kDone, "done"},
    std::pair{ExitStatus::kUsage, "usage or configuration"},
    std::pair{ExitStatus::kData, "data: a dataset is missing, malformed or of another kind"},
    std::pair{ExitStatus::kCheckpoint, "checkpoint: missing, malformed or of another model"},
    std::pair{ExitStatus::kRunFolder,
              "run folder or output: unwritable, full, or in use by another job"},
    std::pair{ExitStatus::kDiverged, "diverged: too many steps with gradients that are not finite"},
    std::pair{ExitStatus::kInternal, "a fault of the program itself"},
    std::pair{ExitStatus::kDevice, "device fault, or out of memory"},
    std::pair{ExitStatus::kRequeue, "stopped on purpose, with a checkpoint: requeue me"},
    std::pair{ExitStatus::kHangOrLostRank, "a rank hangs or is lost"},
    std::pair{ExitStatus::kInterruptedTwice, "ended at once, by a second SIGINT"},
};

}  // namespace trireme
