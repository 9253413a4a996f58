// The MPI library in use, as it describes itself. All can be called before MPI has started.
#pragma once

#include <string>
#include <string_view>

namespace trireme {

std::string mpi_library_version();  // "MPICH 4.0.2"
// What MPICH was built to send messages with: "ch4:ucx". Empty where the library does not say it,
// as Open MPI.
std::string mpi_device();
// The same of another library's text (MPI_Get_library_version).
std::string mpi_device_in(std::string_view library_text);

}  // namespace trireme
