#include "trireme/tensor/device.h"

#include "trireme/base/error.h"
#include "trireme/tensor/cuda.h"

namespace trireme {

std::string Device::to_string() const {
  return kind == DeviceKind::kCpu ? "cpu" : "cuda:" + std::to_string(index);
}

cuda::Runtime& Stream::runtime() const {
  TRIREME_CHECK(runtime_ != nullptr, "a stream on " + device_.to_string() + " has no CUDA runtime");
  return *runtime_;
}

void Stream::synchronize() const {
  if (device_.kind == DeviceKind::kCuda) runtime().synchronize(native_);
}

}  // namespace trireme
