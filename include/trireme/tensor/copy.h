// Copies between tensors of any device.
#pragma once

#include "trireme/tensor/tensor.h"

namespace trireme {

// Queues a copy of all elements on `stream`. Both tensors have the same element type and number of
// elements. If one is on the host and one on a device, `stream` belongs to the device. Memory from
// an allocator may be released when the call returns: it is not handed out again before the copy is
// done. The host may read the copy, or overwrite its source, only after it has waited for the
// stream. For host memory that is not pinned, the call itself waits. Between CPU tensors the copy
// is done when the call returns. A copy from dry memory (allocator.h) to real memory is zeros.
void copy(const Tensor& from, const Tensor& to, const Stream& stream);

// The same, with the direction in the name: the first checks that the data go from the host to a
// device, the second that they come back.
void copy_to_device(const Tensor& host, const Tensor& device, const Stream& stream);
void copy_to_host(const Tensor& device, const Tensor& host, const Stream& stream);

}  // namespace trireme
