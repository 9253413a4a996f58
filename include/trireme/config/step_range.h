// A few steps of a run, as log.trace names them.
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme {

struct StepRange {
  std::int64_t first = 0, last = 0;  // both belong to it; steps count from 1
};
// "12" or "10-12". Throws ConfigError.
StepRange parse_step_range(std::string_view text);

}  // namespace trireme
