// Whether MPI takes addresses of a GPU.
#pragma once

#include <functional>
#include <string>

namespace trireme {

struct MpiDeviceSupport {
  bool direct = false;
  std::string why;  // who says so; one line
};

// `asked` is the value of TRIREME_CUDA_AWARE_MPI (nullptr: not set), which decides: 1 or 0. Else
// the library does, by its MPIX_Query_cuda_support; `symbol` finds a function of the program by
// name. A library that cannot say takes none. Throws ConfigError for another value.
MpiDeviceSupport mpi_device_support(const char* asked,
                                    const std::function<void*(const char*)>& symbol);

// Of this process.
MpiDeviceSupport mpi_device_support();

}  // namespace trireme
