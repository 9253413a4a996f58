// What a Parquet file says of itself: its footer, and the headers of its pages.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "io/files/posix_file.h"
#include "io/parquet/byte_reader.h"
#include "io/parquet/schema.h"

namespace trireme::parquet {

// The pages of a column in a row group, of which nothing has been checked.
struct ColumnChunk {
  std::int64_t type = -1, codec = -1;
  std::int64_t values = 0;  // entries, nulls included
  std::int64_t data = 0, dictionary = 0,
               bytes = 0;       // places in the file, and the length of both
  std::int64_t encryption = 0;  // 0: none
  std::string file;             // empty: this one
};

struct RowGroup {
  std::int64_t rows = 0;
  std::vector<ColumnChunk> columns;  // by leaf
};

struct Footer {
  Schema schema;
  std::vector<RowGroup> groups;
  std::int64_t rows = 0;
  std::int64_t begin = 0;  // its offset in the file, at which the last page ends
};

// Throws DataError where the file is not Parquet, is damaged or has an encrypted footer.
Footer read_footer(const PosixFile& file);

// What stands before each page of a column.
struct PageHeader {
  enum Kind { kData = 0, kIndex = 1, kDictionary = 2, kDataV2 = 3 };
  static constexpr std::int64_t kNoChecksum = std::int64_t{1} << 32;

  std::int64_t kind = -1;
  std::int64_t expanded = -1, bytes = -1;  // of the page, with its levels
  std::int64_t checksum = kNoChecksum;     // CRC-32 of what the file holds of it
  std::int64_t values = -1, encoding = -1;
  // Data pages, first version: how their levels are encoded.
  std::int64_t definition_encoding = -1, repetition_encoding = -1;
  // Data pages, second version: their levels stand before what is compressed.
  std::int64_t definition_bytes = 0, repetition_bytes = 0;
  bool compressed = true;
  std::int64_t body = 0;  // where in the file the page begins
};

// Reads the header at `begin` of a column that goes to `end`; the page, which is not read, fits in
// there, and no number is negative.
PageHeader read_page_header(const PosixFile& file, std::int64_t begin, std::int64_t end,
                            const Place& place);

}  // namespace trireme::parquet
