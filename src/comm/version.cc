#include "trireme/comm/version.h"

#include <algorithm>
#include <string_view>

#include <mpi.h>

namespace trireme {

// MPICH says "MPICH Version:\t4.0.2\n" and then much more; of others the first line.
std::string mpi_library_version() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  std::string line(text);
  line.resize(std::min(line.find('\n'), line.size()));
  constexpr std::string_view kMpich = "MPICH Version:";
  if (!line.starts_with(kMpich)) return line;
  const std::size_t number = line.find_first_not_of(" \t", kMpich.size());
  return "MPICH " + (number == std::string::npos ? "" : line.substr(number));
}

}  // namespace trireme
