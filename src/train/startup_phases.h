// Measures the phases from the process's start to the first step.
#pragma once

#include <string>

#include <fmt/format.h>

#include "trireme/base/clock.h"
#include "trireme/comm/runtime.h"

namespace trireme {

class StartupPhases {
 public:
  explicit StartupPhases(const Runtime::Startup& startup) {
    add("program", startup.program);
    add("MPI", startup.mpi);
    add("world", startup.world);
  }

  // Ends a phase, which began when the previous one ended.
  void done(const char* phase) { add(phase, process_seconds() - total_); }

  double seconds() const { return total_; }
  // "program 0.012 s, MPI 0.120 s, ..."
  const std::string& text() const { return text_; }

 private:
  void add(const char* phase, double seconds) {
    text_ += fmt::format("{}{} {:.3f} s", text_.empty() ? "" : ", ", phase, seconds);
    total_ += seconds;
  }

  double total_ = 0.0;
  std::string text_;
};

}  // namespace trireme
