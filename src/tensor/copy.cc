#include "trireme/tensor/copy.h"

#include <cstring>

#include <fmt/format.h>

#include "trireme/tensor/cuda.h"

namespace trireme {
namespace {

bool on_host(const Tensor& tensor) {
  return tensor.device().kind == DeviceKind::kCpu;
}

}  // namespace

void copy(const Tensor& from, const Tensor& to, const Stream& stream) {
  TRIREME_CHECK(from.dtype() == to.dtype() && from.elements() == to.elements(),
                fmt::format("a copy of {} {} to {} {}", from.shape().to_string(),
                            name_of(from.dtype()), to.shape().to_string(), name_of(to.dtype())));
  if (from.bytes() == 0) return;
  if (on_host(from) && on_host(to)) {
    if (is_dry(to.raw())) return;
    if (is_dry(from.raw())) {
      std::memset(to.raw(), 0, to.bytes());
    } else {
      std::memcpy(to.raw(), from.raw(), from.bytes());
    }
    return;
  }
  const Device device = on_host(from) ? to.device() : from.device();
  TRIREME_CHECK(stream.device() == device && (on_host(to) || to.device() == device),
                fmt::format("a copy from {} to {} on a stream of {}", from.device().to_string(),
                            to.device().to_string(), stream.device().to_string()));
  const auto direction = on_host(from) ? cuda::CopyDirection::kToDevice
                         : on_host(to) ? cuda::CopyDirection::kToHost
                                       : cuda::CopyDirection::kOnDevice;
  stream.runtime().copy(to.raw(), from.raw(), from.bytes(), direction, stream.native());
  from.record_use(stream);
  to.record_use(stream);
}

void copy_to_device(const Tensor& host, const Tensor& device, const Stream& stream) {
  TRIREME_CHECK(on_host(host) && !on_host(device), "copy_to_device goes from the host to a device");
  copy(host, device, stream);
}

void copy_to_host(const Tensor& device, const Tensor& host, const Stream& stream) {
  TRIREME_CHECK(!on_host(device) && on_host(host), "copy_to_host goes from a device to the host");
  copy(device, host, stream);
}

}  // namespace trireme
