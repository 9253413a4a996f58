// The main program of tests under mpiexec that have none of their own.
#include "support/mpi_test.h"

int main(int argc, char** argv) {
  trireme::testing::mpi_test_main(argc, argv);
}
