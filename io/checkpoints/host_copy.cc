#include "io/checkpoints/host_copy.h"

#include <utility>

#include "trireme/tensor/copy.h"
#include "trireme/tensor/narrow.h"

namespace trireme {
namespace {

Tensor host_tensor(const Tensor& like, DType dtype) {
  return Tensor::allocate(*make_caching_allocator(Device()), Stream(), like.shape(), dtype,
                          MemoryUse::kWorkspace);
}

// A tensor on the host with the values, after waiting for them: itself if it is there.
Tensor brought(const Tensor& tensor, const Stream& stream) {
  if (tensor.device().kind == DeviceKind::kCpu) return tensor;
  const Tensor host = host_tensor(tensor, tensor.dtype());
  copy_to_host(tensor, host, stream);
  stream.synchronize();
  return host;
}

// Copies it back, unless `tensor` is on the host and so is `host` itself.
void send(const Tensor& host, const Tensor& tensor, const Stream& stream) {
  if (tensor.device().kind == DeviceKind::kCpu) return;
  copy_to_device(host, tensor, stream);
  stream.synchronize();
}

// A place on the host for what `tensor` is to have: itself if it is there.
Tensor place_for(const Tensor& tensor) {
  return tensor.device().kind == DeviceKind::kCpu ? tensor : host_tensor(tensor, tensor.dtype());
}

}  // namespace

TensorSlice on_host(TensorSlice slice) {
  slice.local = brought(slice.local, slice.stream);
  if (slice.local.dtype() == slice.dtype()) return slice;
  const Tensor wide = host_tensor(slice.local, slice.dtype());
  if (slice.low.defined()) {
    const Tensor low = brought(std::exchange(slice.low, {}), slice.stream);
    join_from(slice.local, low.span<std::uint16_t>(), wide.span<float>());
  } else {
    widen(slice.local, wide.span<float>());
  }
  slice.local = wide;
  return slice;
}

void bring_back(const TensorSlice& host, const TensorSlice& slice) {
  if (slice.local.dtype() == slice.dtype()) return send(host.local, slice.local, slice.stream);
  const Tensor narrow = place_for(slice.local);
  if (slice.low.defined()) {
    const Tensor low = place_for(slice.low);
    split_to(host.local.span<float>(), narrow, low.span<std::uint16_t>());
    send(low, slice.low, slice.stream);
  } else if (round_to(host.local.span<float>(), narrow) && slice.rounded) {
    *slice.rounded = true;
  }
  send(narrow, slice.local, slice.stream);
}

}  // namespace trireme
