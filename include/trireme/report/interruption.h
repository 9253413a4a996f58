// How a run ended the last time, according to its folder.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace trireme {

struct Interruption {
  std::int64_t last_step = 0;  // the last step that was done
  double last_time = 0.0;      // when it was done, in seconds since 1970
  bool on_purpose = false;     // a signal, a time limit, or the run's end
  std::string cause;           // what the job script knows about a failure; else empty
};

// Returns nothing if no step was done yet. Call it before metrics.jsonl is cut back.
std::optional<Interruption> read_interruption(const std::string& folder);

// Returns "a failure (n3: task 2: Killed) cost 14.2 s until the next step; 7 steps are repeated".
// `seconds` is the time between the last step before the interruption and the first step of this
// start, which resumed after `step`.
std::string cost_of(const Interruption& interruption, std::int64_t step, double seconds);

}  // namespace trireme
