// How OpenMP's threads wait for each other.
#pragma once

namespace trireme::cli {

// Starts this program anew, with the same arguments, where the user has not said how OpenMP waits.
void choose_openmp_waiting(char** argv);

}  // namespace trireme::cli
