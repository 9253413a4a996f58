// Which MPI this program runs on.
#pragma once

#include <string>

namespace trireme {

// "MPICH 4.0.2", of the library in use. MPI need not have started.
std::string mpi_library_version();

}  // namespace trireme
