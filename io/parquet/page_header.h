// What stands before each page of a column.
#pragma once

#include <cstdint>
#include <optional>

#include "io/files/posix_file.h"
#include "io/parquet/place.h"

namespace trireme::parquet {

struct PageHeader {
  enum Kind { kData = 0, kIndex = 1, kDictionary = 2, kDataV2 = 3 };
  std::int32_t kind = -1;
  std::int32_t expanded = -1, bytes = -1;  // of the page, with its levels
  std::optional<std::uint32_t> checksum;   // CRC-32 of what the file holds of it
  std::int32_t values = -1, encoding = -1;
  // Data pages, first version: how their levels are encoded.
  std::int32_t definition_encoding = -1, repetition_encoding = -1;
  // Data pages, second version: their levels stand before what is compressed.
  std::int32_t definition_bytes = 0, repetition_bytes = 0;
  bool compressed = true;
  std::int64_t body = 0;  // where in the file the page begins
};

// Reads the header at `begin` of a column that goes to `end`; the page, which is not read, fits in
// there, and no number is negative.
PageHeader read_page_header(const PosixFile& file, std::int64_t begin, std::int64_t end,
                            const Place& place);

}  // namespace trireme::parquet
