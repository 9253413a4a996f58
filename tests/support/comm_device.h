// The device for tests of communicators: scripted, or a GPU. A program links one of
// comm_device_*.cc.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/tensor/cuda.h"

namespace trireme::testing {

struct CommDevice {
  std::shared_ptr<cuda::Runtime> cuda;  // the tests use its device 0
  bool mpi_reads_it = false;            // MPI takes addresses of the device's memory
};

// `seed` decides when the streams of a scripted device move.
CommDevice make_comm_device(std::uint64_t seed);

// Returns how often the host has waited for a scripted device; 0 for a GPU.
std::size_t host_waits(const CommDevice& device);

// Call it at the end: returns what is still alive on a scripted device, or was touched too late.
std::vector<std::string> leftovers(const CommDevice& device);

}  // namespace trireme::testing
