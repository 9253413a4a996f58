// The fault that ended a rank, in the form in which ranks report it to each other.
#pragma once

#include <exception>
#include <string>
#include <vector>

#include "trireme/base/exit_status.h"

namespace trireme {

// An exception that left the body of the run.
struct Fault {
  int rank = 0;
  int status = 0;
  std::string text;

  // True if the cause may be another rank's fault.
  bool lost_rank() const { return status == static_cast<int>(ExitStatus::kHangOrLostRank); }
};

// Returns the fault that decides the job's exit status. `known` is ordered by rank and not empty.
// It is the fault of the lowest rank that has not merely lost another rank, or else the lowest
// rank's.
const Fault& cause_of(const std::vector<Fault>& known);

// Describes an exception of this rank in the words that the user will read.
Fault describe_exception(const std::exception_ptr& exception, int rank);

}  // namespace trireme
