// Records of Parquet files.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/prepare/byte_stream.h"
#include "io/prepare/record_source.h"

namespace trireme {

// Whether a file that begins so is Parquet, whose footer may be encrypted.
bool is_parquet(std::string_view beginning);

// Rows of a regular file, which are read from many places of it: `file` is told how far they are.
// Throws DataError where a field is not there or holds no texts. A row whose field is null is a
// BadRecord.
std::unique_ptr<RecordSource> make_parquet(std::unique_ptr<FileBytes> file,
                                           const std::vector<std::string>& names);

}  // namespace trireme
