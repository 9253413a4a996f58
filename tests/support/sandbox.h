// Runs a function in a process of its own, where it may crash, hang or use too much.
#pragma once

#include <functional>
#include <string>

namespace trireme::testing {

struct SandboxResult {
  int status = 0;          // exit status of the process; 128 + N: ended by signal N
  bool timed_out = false;  // killed for using too much time
  std::string out, err;    // standard output and standard error
};

// Runs `body` in a fork of this process and returns the outcome; the result of `body` is the
// status. Standard input is empty. The process may use `seconds` of processor time, ten times as
// much by the clock, and write files of at most 256 MiB.
SandboxResult run_in_sandbox(const std::function<int()>& body, int seconds);

}  // namespace trireme::testing
