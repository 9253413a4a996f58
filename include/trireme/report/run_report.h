// Keeps RUN/report.html up to date while the run goes on.
#pragma once

#include <optional>
#include <string>

#include "trireme/report/run_history.h"

namespace trireme {

// Only one process writes it. The page only informs the user, so a failure to write it does not end
// the run: it is reported once, in one line.
class RunReport {
 public:
  explicit RunReport(std::string folder) : folder_(std::move(folder)) {}

  // Writes the page from the folder's present files. `ended` says how the run has just ended.
  void write(const std::optional<std::string>& ended = {}) noexcept;
  // The run as the last page shows it; empty if it could not be read.
  const std::optional<RunHistory>& history() const { return history_; }

 private:
  std::string folder_;
  std::optional<RunHistory> history_;  // each write() reads on from where the last one stopped
  bool failed_ = false;
};

}  // namespace trireme
