#include "trireme/base/wall_clock.h"

#include <chrono>
#include <cmath>

namespace trireme {

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

double unix_seconds_for_records() {
  return std::round(1e3 * unix_seconds()) / 1e3;
}

}  // namespace trireme
