#include "cli/openmp_waiting.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <unistd.h>

namespace trireme::cli {

// Left alone, a thread of GNU OpenMP spins for milliseconds at the end of each parallel loop before
// it sleeps, and less only where its own process has more threads than cores. It does not see the
// other ranks of the node: where these need the core, they cannot do what it waits for, and a step
// takes many times as long. To sleep at once costs a parallel loop of two threads about 5 us.
// OpenMP reads the environment before main, so a setting needs a new start; only one, as then it is
// set.
void choose_openmp_waiting(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (setenv("OMP_WAIT_POLICY", "passive", 1) != 0) return;
  // By its path, not as /proc/self/exe, which would be the name that ps and top show.
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error)
    execv(program.c_str(), argv);  // where that fails, all is as it was: slower, not wrong
}

}  // namespace trireme::cli
