// Records of tables: CSV and TSV with a header, as RFC 4180 has them.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/prepare/byte_stream.h"
#include "io/prepare/record_source.h"

namespace trireme {

// A field may be in quotes, with any bytes inside; two quotes are one. Lines end with \n or \r\n,
// and empty ones are left out.
std::unique_ptr<RecordSource> make_table(std::string file, ByteStreamPtr stream, char delimiter,
                                         std::vector<std::string> names);

// The columns that a table which begins so would have; nothing where quotes are wrong.
std::optional<std::vector<std::string>> table_header(std::string_view beginning, char delimiter);

}  // namespace trireme
