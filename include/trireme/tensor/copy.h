// Copies between tensors of any device.
#pragma once

#include "trireme/tensor/tensor.h"

namespace trireme {

// Queues on `stream` a copy of all elements; both tensors have the same element type and number of
// elements. One on the host and one on a device: `stream` is the device's. Memory from an allocator
// may be let go of when the call returns: it is not handed out again before the copy is done. The
// host may read a copy, or overwrite what is copied, only after the stream has been waited for; for
// host memory that is not pinned the call itself waits. Between tensors of the CPU the copy is done
// when the call returns.
void copy(const Tensor& from, const Tensor& to, const Stream& stream);

// The same, for a reader: the first checks that the data go from the host to a device, the second
// that they come back.
void copy_to_device(const Tensor& host, const Tensor& device, const Stream& stream);
void copy_to_host(const Tensor& device, const Tensor& host, const Stream& stream);

}  // namespace trireme
