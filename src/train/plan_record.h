// What a plan has said of the run's step, kept beside what was measured: RUN/plan.json.
#pragma once

#include "trireme/report/run_history.h"

namespace trireme {

class PlanRecord {
 public:
  // Writes the file, if the run's keys (plan.*) are of it. It only informs, so a failure is told in
  // one line, once, and the run goes on.
  void write(const RunHistory& history) noexcept;

 private:
  bool failed_ = false;
};

}  // namespace trireme
