#include "cli/openmp_waiting.h"

#include <cstdlib>
#include <filesystem>
#include <system_error>

#include <unistd.h>

namespace trireme::cli {

// A thread of GNU OpenMP spins by default for milliseconds at the end of each parallel loop before
// it sleeps, and less only if its own process has more threads than cores. It does not know of the
// other ranks of the node. If these need the core, they cannot do what the thread waits for, and a
// step takes many times as long. Sleeping at once costs a parallel loop of two threads about 5 us.
// OpenMP reads the environment before main, so the setting needs a restart of the program. There is
// only one restart, because then the variable is set.
void choose_openmp_waiting(char** argv) {
  if (std::getenv("OMP_WAIT_POLICY") != nullptr || std::getenv("GOMP_SPINCOUNT") != nullptr) return;
  if (setenv("OMP_WAIT_POLICY", "passive", 1) != 0) return;
  // Uses the program's path, because ps and top would show the name /proc/self/exe.
  std::error_code error;
  const auto program = std::filesystem::read_symlink("/proc/self/exe", error);
  if (!error)
    execv(program.c_str(), argv);  // if it fails, the program runs as it is: slower, but correct
}

}  // namespace trireme::cli
