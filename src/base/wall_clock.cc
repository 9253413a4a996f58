#include "trireme/base/wall_clock.h"

#include <chrono>

namespace trireme {

double unix_seconds() {
  return std::chrono::duration<double>(std::chrono::system_clock::now().time_since_epoch()).count();
}

}  // namespace trireme
