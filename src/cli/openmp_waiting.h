// How OpenMP's threads wait for each other.
#pragma once

namespace trireme::cli {

// Restarts this program with OMP_WAIT_POLICY=passive and the same arguments, unless the user has
// chosen how OpenMP waits (OMP_WAIT_POLICY or GOMP_SPINCOUNT).
void choose_openmp_waiting(char** argv);

}  // namespace trireme::cli
