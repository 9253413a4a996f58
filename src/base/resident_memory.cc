#include "trireme/base/resident_memory.h"

#include <sys/resource.h>

namespace trireme {

double peak_resident_bytes() {
  rusage usage{};
  getrusage(RUSAGE_SELF, &usage);
  return static_cast<double>(usage.ru_maxrss) * 1024.0;
}

}  // namespace trireme
