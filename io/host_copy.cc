#include "host_copy.h"

#include "trireme/tensor/copy.h"

namespace trireme {
namespace {

bool is_on_host(const TensorSlice& slice) {
  return slice.local.device().kind == DeviceKind::kCpu;
}

}  // namespace

TensorSlice on_host(TensorSlice slice) {
  if (is_on_host(slice)) return slice;
  const Tensor device = slice.local;
  slice.local = Tensor::allocate(*make_caching_allocator(Device()), Stream(), device.shape(),
                                 device.dtype(), MemoryUse::kWorkspace);
  copy_to_host(device, slice.local, slice.stream);
  slice.stream.synchronize();
  return slice;
}

void bring_back(const TensorSlice& host, const TensorSlice& slice) {
  if (is_on_host(slice)) return;
  copy_to_device(host.local, slice.local, slice.stream);
  slice.stream.synchronize();
}

}  // namespace trireme
