// Phases that either all ranks finish or none.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"

namespace trireme {

// What went wrong, in a form that can be sent to other ranks.
struct PhaseFault {
  ExitStatus status = ExitStatus::kInternal;
  std::string message;
  Cause cause = Cause::kWrong;

  [[noreturn]] void raise() const;  // as the Error class of the status
};

// Collective over comm. Runs the body. If it throws on some ranks, returns the fault of the lowest
// of these ranks on all ranks, so that all ranks leave the phase in the same way.
std::optional<PhaseFault> attempt_together(Communicator& comm, const std::function<void()>& body);

// Collective over comm. The same, but throws the fault.
void run_together(Communicator& comm, const std::function<void()>& body);

// Collective over comm. Gathers every rank's text on rank 0, in rank order; other ranks get an
// empty list. The texts go up a binomial tree: a rank sends one list of texts, and holds only those
// that pass through it.
std::vector<std::string> gather_to_first(Communicator& comm, std::string text);

// Collective over comm. The way back: rank r gets texts[r] of rank 0.
std::string scatter_from_first(Communicator& comm, std::vector<std::string> texts);

// Collective over comm. Returns every rank's text on every rank, in rank order.
std::vector<std::string> gather_text(Communicator& comm, std::string text);

// Collective over comm. An in-place all-reduce: sums modulo 2^64.
void sum_modular(Communicator& comm, std::vector<std::uint64_t>& values);

}  // namespace trireme
