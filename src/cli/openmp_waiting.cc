#include "cli/openmp_waiting.h"

#include <cstdlib>

#include <unistd.h>

namespace trireme::cli {

// GNU OpenMP's threads spin at a barrier before they sleep, for up to milliseconds, and only with
// more threads than cores in the process itself for less. It does not see the other ranks of the
// node, with whom these cores are shared: a thread that spins keeps from them the core on which
// they would do what it waits for. It reads the environment before main, so what is set here needs
// a new start; once, as then the variable is set.
void choose_openmp_waiting(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (setenv("GOMP_SPINCOUNT", "10000", 1) != 0) return;
  execv("/proc/self/exe", argv);  // where that fails it is slower, not wrong
}

}  // namespace trireme::cli
