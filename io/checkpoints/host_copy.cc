#include "io/checkpoints/host_copy.h"

#include "trireme/tensor/copy.h"
#include "trireme/tensor/narrow.h"

namespace trireme {
namespace {

bool is_on_host(const TensorSlice& slice) {
  return slice.local.device().kind == DeviceKind::kCpu;
}

Tensor host_tensor(const Tensor& like, DType dtype) {
  return Tensor::allocate(*make_caching_allocator(Device()), Stream(), like.shape(), dtype,
                          MemoryUse::kWorkspace);
}

}  // namespace

TensorSlice on_host(TensorSlice slice) {
  if (!is_on_host(slice)) {
    const Tensor device = slice.local;
    slice.local = host_tensor(device, device.dtype());
    copy_to_host(device, slice.local, slice.stream);
    slice.stream.synchronize();
  }
  if (slice.local.dtype() != slice.dtype()) {
    const Tensor wide = host_tensor(slice.local, slice.dtype());
    widen(slice.local, wide.span<float>());
    slice.local = wide;
  }
  return slice;
}

void bring_back(const TensorSlice& host, const TensorSlice& slice) {
  Tensor narrow = host.local;
  if (slice.local.dtype() != slice.dtype()) {
    narrow = is_on_host(slice) ? slice.local : host_tensor(slice.local, slice.local.dtype());
    const bool changed = round_to(host.local.span<float>(), narrow);
    if (changed && slice.rounded) *slice.rounded = true;
  }
  if (is_on_host(slice)) return;
  copy_to_device(narrow, slice.local, slice.stream);
  slice.stream.synchronize();
}

}  // namespace trireme
