// A range of steps of a run, as in log.trace.
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme {

struct StepRange {
  std::int64_t first = 0, last = 0;  // both included; steps count from 1
};
// Reads "12" or "10-12". Throws ConfigError.
StepRange parse_step_range(std::string_view text);

}  // namespace trireme
