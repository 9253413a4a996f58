// The end of a Parquet file, which says what it holds and where.
#pragma once

#include <cstdint>
#include <vector>

#include "io/files/posix_file.h"
#include "io/parquet/schema.h"

namespace trireme::parquet {

// The pages of a column in a row group, of which nothing has been checked.
struct ColumnChunk {
  std::int32_t type = -1, codec = -1;
  std::int64_t values = 0;                    // entries, nulls included
  std::int64_t begin = 0, bytes = 0;          // in the file
  bool encrypted = false, elsewhere = false;  // elsewhere: in another file
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

}  // namespace trireme::parquet
