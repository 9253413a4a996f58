// Slices of tensors on a GPU, where the file system can have them.
#pragma once

#include "trireme/io/tensor_slice.h"

namespace trireme {

// The slice itself where its memory is the host's; otherwise with a copy of it in host memory.
// Waits for the slice's stream.
TensorSlice on_host(TensorSlice slice);

// After a change of the copy that on_host made of `slice`. Waits for the copy.
void bring_back(const TensorSlice& host, const TensorSlice& slice);

}  // namespace trireme
