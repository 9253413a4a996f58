// Common parts of tests under mpiexec. Link trireme_test_mpi_main instead of gtest_main: every rank
// runs every test, each failure names its rank, and all ranks end with the same verdict.
#pragma once

#include "trireme/comm/runtime.h"

namespace trireme::testing {

// The runtime of the test program.
Runtime& runtime();

// Runs all tests; ends the process.
[[noreturn]] void mpi_test_main(int argc, char** argv);

}  // namespace trireme::testing
