// How a run ended the last time, as its folder tells it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme {

struct Interruption {
  std::int64_t last_step = 0;  // done by then
  double last_time = 0.0;      // of that step, in seconds since 1970
  bool on_purpose = false;     // a signal, a time limit, or the run's end
  std::string cause;           // what the job script knows of a failure; else empty
};

// Nothing where no step was done yet. Read it before metrics.jsonl is cut back.
std::optional<Interruption> read_interruption(const std::string& folder);

// "a failure (n3: task 2: Killed) cost 14.2 s until the next step; 7 steps are repeated".
// `seconds` passed between the last step done then and the first one of this start, which went on
// after `step`.
std::string cost_of(const Interruption& interruption, std::int64_t step, double seconds);

}  // namespace trireme
