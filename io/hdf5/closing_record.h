// The closing record of our HDF5 files. It makes every byte of such a file checkable, and reveals
// damage before HDF5 looks at the file (a damaged header can make HDF5 itself crash).
// Format: io/README.md, "Closing record".
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "io/files/posix_file.h"

namespace trireme {

// Bytes [offset, offset + bytes) of the file.
struct ByteRange {
  std::int64_t offset = 0;
  std::int64_t bytes = 0;
  bool operator==(const ByteRange&) const = default;
};

// Appends the record to a complete HDF5 file. The ranges in `data` have checksums of their own; the
// record protects everything else and itself.
void append_record(PosixFile& file, std::vector<ByteRange> data);

// Reads the record and checks everything that it protects. Returns the data ranges sorted by
// offset, or nothing if the file does not end with a record. Throws an error of the file's status:
// of Cause::kWrong if anything is damaged.
std::optional<std::vector<ByteRange>> check_record(const PosixFile& file);

}  // namespace trireme
