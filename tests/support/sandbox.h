// A function in a process of its own, which may crash, hang or ask for too much.
#pragma once

#include <functional>
#include <string>

namespace trireme::testing {

struct SandboxResult {
  int status = 0;          // with which the process ended; 128 + N: by signal N
  bool timed_out = false;  // it was ended for using too much time
  std::string out, err;    // what it wrote
};

// Runs `body` in a fork of this process and returns what became of it; its result is the status.
// Standard input is empty. The process may use so many seconds of processor time, ten times as much
// by the clock, and write files of at most 256 MiB.
SandboxResult run_in_sandbox(const std::function<int()>& body, int seconds);

}  // namespace trireme::testing
