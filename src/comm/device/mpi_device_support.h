// Whether MPI accepts GPU addresses.
#pragma once

#include <functional>
#include <string>

namespace trireme {

struct MpiDeviceSupport {
  bool direct = false;
  std::string why;  // the source of the answer, one line
};

// `asked` is the value of TRIREME_CUDA_AWARE_MPI (nullptr: not set). 1 or 0 decides. If it is not
// set, the library decides by its MPIX_Query_cuda_support; `symbol` finds a function of the program
// by name. A library that lacks it counts as no. Throws ConfigError for another value of `asked`.
MpiDeviceSupport mpi_device_support(const char* asked,
                                    const std::function<void*(const char*)>& symbol);

// Returns the same for this process.
MpiDeviceSupport mpi_device_support();

}  // namespace trireme
