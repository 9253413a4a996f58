// What ended a rank, as ranks tell each other.
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

  // Its cause may be another rank's fault.
  bool lost_rank() const { return status == static_cast<int>(ExitStatus::kHangOrLostRank); }
};

// With which the job ends, of what is known (something): the lowest rank's that is a cause, or the
// lowest rank's.
const Fault& cause_of(const std::vector<Fault>& known);

// Of this rank, as the user shall read it.
Fault describe_exception(const std::exception_ptr& exception, int rank);

}  // namespace trireme
