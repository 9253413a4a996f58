// Copies of GPU slices in host memory, where the file system can use them.
#pragma once

#include "trireme/io/tensor_slice.h"

namespace trireme {

// Returns the slice itself if it is in host memory. Otherwise returns it with a copy in host
// memory, and waits for the slice's stream.
TensorSlice on_host(TensorSlice slice);

// Copies `host`, which on_host made from `slice`, back to the GPU after a change. Waits for the
// copy. Does nothing if `slice` is in host memory.
void bring_back(const TensorSlice& host, const TensorSlice& slice);

}  // namespace trireme
