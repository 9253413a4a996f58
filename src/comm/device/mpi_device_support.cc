#include "comm/device/mpi_device_support.h"

#include <cstdlib>
#include <string_view>

#include <dlfcn.h>
#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr const char* kVariable = "TRIREME_CUDA_AWARE_MPI";
constexpr const char* kQuery = "MPIX_Query_cuda_support";  // in Open MPI, and in MPICH since 4.0

}  // namespace

MpiDeviceSupport mpi_device_support(const char* asked,
                                    const std::function<void*(const char*)>& symbol) {
  if (asked != nullptr) {
    const std::string_view value(asked);
    if (value != "0" && value != "1") {
      throw ConfigError(fmt::format("{} is '{}': 0 or 1 is expected", kVariable, value));
    }
    return {value == "1", fmt::format("{}={}", kVariable, value)};
  }
  auto* query = reinterpret_cast<int (*)()>(symbol(kQuery));
  if (query == nullptr) return {false, fmt::format("this MPI has no {}", kQuery)};
  const bool direct = query() == 1;
  return {direct, fmt::format("{} of this MPI says {}", kQuery, direct ? "yes" : "no")};
}

MpiDeviceSupport mpi_device_support() {
  return mpi_device_support(std::getenv(kVariable),
                            [](const char* name) { return dlsym(RTLD_DEFAULT, name); });
}

}  // namespace trireme
