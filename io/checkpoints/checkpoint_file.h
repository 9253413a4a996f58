// The HDF5 part of a checkpoint file (format: io/CHECKPOINTS.md).
#pragma once

#include <string>
#include <string_view>

#include "trireme/io/checkpoint.h"

namespace trireme {

// Reads the headers in the HDF5 part, and trusts nothing in it. Throws CheckpointError.
CheckpointContents read_contents(const std::string& path);

// Names in the HDF5 part.
inline constexpr const char* kChecksumsName = "/checksums";
inline constexpr const char* kTensorNamesAttribute = "tensors";
inline constexpr std::string_view kTextsGroup = "/tokenizer/";

}  // namespace trireme
