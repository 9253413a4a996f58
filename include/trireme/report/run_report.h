// Keeps RUN/report.html true while the run goes on.
#pragma once

#include <optional>
#include <string>

#include "trireme/report/run_history.h"

namespace trireme {

// By one process. The page is for who looks on: a fault to write it is told once, in one line, and
// ends no run.
class RunReport {
 public:
  explicit RunReport(std::string folder) : folder_(std::move(folder)) {}

  // From the folder's files as they are now. `ended`: how the run has just ended.
  void write(const std::optional<std::string>& ended = {}) noexcept;

 private:
  std::string folder_;
  std::optional<RunHistory> history_;  // read on from where it stood the last time
  bool failed_ = false;
};

}  // namespace trireme
