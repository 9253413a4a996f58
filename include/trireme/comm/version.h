// The version of the MPI library in use.
#pragma once

#include <string>

namespace trireme {

// For example "MPICH 4.0.2". Can be called before MPI has started.
std::string mpi_library_version();

}  // namespace trireme
