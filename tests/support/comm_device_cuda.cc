#include <cstdio>

#include "comm/device/mpi_device_support.h"
#include "support/comm_device.h"
#include "support/mpi_test.h"

namespace trireme::testing {

CommDevice make_comm_device(std::uint64_t) {
  return {cuda::make_runtime(), mpi_device_support().direct};
}

std::size_t host_waits(const CommDevice&) {
  return 0;
}

std::vector<std::string> leftovers(const CommDevice&) {
  return {};
}

}  // namespace trireme::testing

// All ranks share one GPU.
int main(int argc, char** argv) {
  const trireme::cuda::Devices found = trireme::cuda::make_runtime()->devices();
  if (found.count == 0) {
    std::printf("skipped: there is no GPU: %s\n", found.why_none.c_str());
    return 77;
  }
  trireme::testing::mpi_test_main(argc, argv);
}
