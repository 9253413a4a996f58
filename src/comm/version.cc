#include "trireme/comm/version.h"

#include <algorithm>
#include <string_view>

#include <mpi.h>

namespace trireme {
namespace {

std::string library_text() {
  char text[MPI_MAX_LIBRARY_VERSION_STRING] = {};
  int length = 0;
  MPI_Get_library_version(text, &length);
  return text;
}

// What follows "NAME:" at the beginning of a line, without blanks around it.
std::string value_of(std::string_view text, std::string_view name) {
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    std::string_view line = text.substr(begin, end - begin);
    begin = end + 1;
    if (!line.starts_with(name) || line.substr(name.size(), 1) != ":") continue;
    line.remove_prefix(name.size() + 1);
    const std::size_t first = line.find_first_not_of(" \t\r");
    if (first == line.npos) return {};
    return std::string(line.substr(first, line.find_last_not_of(" \t\r") + 1 - first));
  }
  return {};
}

}  // namespace

// MPICH says "MPICH Version:\t4.0.2\n" and then much more; of others the first line.
std::string mpi_library_version() {
  const std::string text = library_text();
  const std::string version = value_of(text, "MPICH Version");
  return version.empty() ? text.substr(0, text.find('\n')) : "MPICH " + version;
}

std::string mpi_device_in(std::string_view library_text) {
  return value_of(library_text, "MPICH Device");
}

std::string mpi_device() {
  return mpi_device_in(library_text());
}

}  // namespace trireme
