#include "trireme/tensor/device.h"

#include "trireme/base/error.h"

namespace trireme {

std::string Device::to_string() const {
  return kind == DeviceKind::kCpu ? "cpu" : "cuda:" + std::to_string(index);
}

void Stream::synchronize() const {
  TRIREME_CHECK(device_.kind == DeviceKind::kCpu, "this build has no CUDA streams");
}

}  // namespace trireme
