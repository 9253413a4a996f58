#include "comm/faults/fault.h"

#include <algorithm>

#include "trireme/base/caught.h"

namespace trireme {

const Fault& cause_of(const std::vector<Fault>& known) {
  const auto cause = std::ranges::find_if_not(known, &Fault::lost_rank);
  return cause == known.end() ? known.front() : *cause;
}

Fault describe_exception(const std::exception_ptr& exception, int rank) {
  const Error error = caught(exception);
  return {rank, static_cast<int>(error.status()), error.what()};
}

}  // namespace trireme
