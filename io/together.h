// Phases that all ranks finish, or none.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/exit_status.h"
#include "trireme/comm/communicator.h"

namespace trireme {

// What went wrong, in a form that travels.
struct PhaseFault {
  ExitStatus status = ExitStatus::kInternal;
  std::string message;

  [[noreturn]] void raise() const;  // as the Error class of the status
};

// Collective over comm. Runs the body; where it throws on some ranks, returns the fault of the
// lowest of them on all, so that all ranks leave the phase in the same way.
std::optional<PhaseFault> attempt_together(Communicator& comm, const std::function<void()>& body);

// The same, raising the fault.
void run_together(Communicator& comm, const std::function<void()>& body);

// Collective over comm. On rank 0 every rank's text, in rank order; nothing elsewhere. The texts go
// up a binomial tree, so a rank sends one message and holds what comes by it alone.
std::vector<std::string> gather_to_first(Communicator& comm, std::string text);

// Collective over comm, the way back: texts[r] of rank 0 on rank r.
std::string scatter_from_first(Communicator& comm, std::vector<std::string> texts);

// Collective over comm. Every rank's text on every rank, in rank order.
std::vector<std::string> gather_text(Communicator& comm, std::string text);

// Collective over comm, in place: sums modulo 2^64.
void sum_modular(Communicator& comm, std::vector<std::uint64_t>& values);

}  // namespace trireme
