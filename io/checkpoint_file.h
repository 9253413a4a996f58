// The HDF5 part of a checkpoint file (format: io/README.md, "Checkpoints").
#pragma once

#include <string>

#include "trireme/io/checkpoint.h"

namespace trireme {

// What the HDF5 part says; trusts nothing. Throws CheckpointError.
CheckpointContents read_contents(const std::string& path);

// Fields of the HDF5 part.
inline constexpr const char* kChecksumsName = "/checksums";
inline constexpr const char* kTensorNamesAttribute = "tensors";

}  // namespace trireme
