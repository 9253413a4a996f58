// Records of Parquet files.
#pragma once

#include <cstddef>
#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/posix_file.h"
#include "io/prepare/byte_stream.h"
#include "io/prepare/record_source.h"

namespace trireme {

// Whether a file that begins so is Parquet, whose footer may be encrypted.
bool is_parquet(std::string_view beginning);

// Groups of rows [first, end) of a file; by default all.
struct RowGroups {
  std::size_t first = 0, end = std::numeric_limits<std::size_t>::max();
};

// Rows of a file, which are read from many places of it: `progress`, which may be null, is told how
// far they are. Throws OtherFile where a field is not there, DataError where it holds no
// texts or no field is asked for. A row whose field is null is a BadRecord.
std::unique_ptr<RecordSource> make_parquet(PosixFile file, std::unique_ptr<FileBytes> progress,
                                           const std::vector<std::string>& names,
                                           const RowGroups& groups = {});
// How many groups of rows a file has that has the fields.
std::size_t row_groups_of(PosixFile file, const std::vector<std::string>& names);

}  // namespace trireme
