// Copies of slices in host memory, in the types that files have, where the file system can use
// them. A checkpoint is read one slice at a time, so the host never holds all that a GPU holds.
#pragma once

#include "trireme/io/tensor_slice.h"

namespace trireme {

// Returns the slice itself if it is in host memory and of the type in files. Otherwise returns it
// with a copy that is, after waiting for the slice's stream.
TensorSlice on_host(TensorSlice slice);

// Copies `host`, which on_host made from `slice`, back after a change. Waits for the copy. Does
// nothing if on_host returned the slice itself.
void bring_back(const TensorSlice& host, const TensorSlice& slice);

}  // namespace trireme
