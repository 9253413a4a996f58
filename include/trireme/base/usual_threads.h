// How many threads compute where nobody says how many.
#pragma once

#include <optional>

namespace trireme {

// Returns the first number of OMP_NUM_THREADS, by which users of OpenMP say how many threads a
// process shall have; nullopt where it is not set or says none.
std::optional<int> openmp_threads();

// Returns the cores that a quota of processors keeps busy, at most `cores` and at least 1. No part
// of one counts: a thread that is stopped at the end of its quota holds up all others.
int cores_within(int cores, std::optional<double> quota);

// Returns the threads for a process with such cores: OMP_NUM_THREADS, at most one for each core.
int usual_threads(int cores);
// The same for the cores and the quota of this process alone.
int usual_threads();

}  // namespace trireme
