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
// and empty ones are left out. Spaces around the header's names are none of theirs. Throws
// DataError where two columns have a name that is asked for.
std::unique_ptr<RecordSource> make_table(std::string file, ByteStreamPtr stream, char delimiter,
                                         std::vector<std::string> names);

// How a text begins that may be a table.
struct TableBeginning {
  std::vector<std::string> header;    // without spaces around names
  std::size_t alike = 0, others = 0;  // of the next rows: those with as many fields, and not
};

// Nothing where the header's quotes are wrong. Where the beginning is not the whole text, its last
// line is not looked at.
std::optional<TableBeginning> table_beginning(std::string_view beginning, char delimiter,
                                              bool is_whole);

}  // namespace trireme
