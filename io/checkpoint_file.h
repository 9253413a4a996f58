// The closing record of a checkpoint file: what makes every byte of it checkable, and lets damage
// be found before HDF5 looks at the file (a damaged header can make HDF5 itself crash).
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/io/checkpoint.h"

#include "posix_file.h"

namespace trireme {

// Bytes [offset, offset + bytes) of the file.
struct ByteRange {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  bool operator==(const ByteRange&) const = default;
};

// Appends the record to a complete HDF5 file: the ranges hold the data of tensors (checked by their
// own checksums), the record checks everything else and itself.
void append_record(PosixFile& file, std::vector<ByteRange> data);

// Reads the record and checks everything that it protects. Returns the data ranges by offset.
// Throws CheckpointError.
std::vector<ByteRange> check_record(const PosixFile& file);

// What the HDF5 part says; trusts nothing. Throws CheckpointError.
CheckpointContents read_contents(const std::string& path);

// Fields of the HDF5 part.
inline constexpr const char* kChecksumsName = "/checksums";
inline constexpr const char* kTensorNamesAttribute = "tensors";

}  // namespace trireme
