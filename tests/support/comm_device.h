// The device of the tests of communicators: scripted, or a GPU. A program links one of
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
  std::shared_ptr<cuda::Runtime> cuda;  // device 0 of it
  bool scripted = false;
};

// `seed` gives a scripted device the moments at which its streams move.
CommDevice make_comm_device(std::uint64_t seed);

// How often the host has waited for a scripted device; 0 of a GPU.
std::size_t host_waits(const CommDevice& device);

// At the end: what is alive still, or was touched too late, of a scripted device.
std::vector<std::string> leftovers(const CommDevice& device);

}  // namespace trireme::testing
