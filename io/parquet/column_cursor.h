// A column of a row group, entry by entry.
#pragma once

#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/posix_file.h"
#include "io/parquet/codecs.h"
#include "io/parquet/metadata.h"
#include "io/parquet/packed_numbers.h"
#include "io/parquet/values.h"

namespace trireme::parquet {

// It holds one page and the dictionary, and what the row at hand has of earlier pages. An entry is
// a value or a null, with its levels.
class ColumnCursor {
 public:
  // `footer` and `file` outlive the cursor. Throws DataError where the column is not read:
  // encrypted, compressed otherwise, out of the file.
  ColumnCursor(const PosixFile& file, const Footer& footer, std::size_t group, std::size_t leaf);
  ColumnCursor(const ColumnCursor&) = delete;
  ColumnCursor& operator=(const ColumnCursor&) = delete;

  const Place& place() const { return place_; }
  bool at_end() const { return !open_; }
  // Levels of the entry; 0 at the end.
  int definition() const { return definition_; }
  int repetition() const { return repetition_; }
  // The entry's value, if its definition level is the largest. It is asked for once, and stays to
  // the next begin_row().
  std::string_view value();
  void advance();
  void begin_row();

 private:
  bool open_page();
  void open_data(const PageHeader& header, Buffer raw);
  void open_levels(const PageHeader& header, ByteReader& bytes);
  void keep(std::size_t bytes);

  const PosixFile& file_;
  const Leaf& leaf_;
  const ColumnChunk& chunk_;
  Place place_;
  std::int64_t at_, end_;       // in the file
  std::int64_t values_left_;    // beyond this page
  std::int64_t page_left_ = 0;  // beyond this entry
  std::optional<Dictionary> dictionary_;
  Buffer raw_, page_;  // as the file has it, and expanded, if need be
  std::optional<BitRuns> repetitions_, definitions_;
  Values values_;
  bool open_ = true;
  int repetition_ = 0, definition_ = 0;

  // The row's.
  std::vector<Buffer> pages_;
  std::deque<std::string> kept_;
  std::size_t kept_bytes_ = 0;
};

}  // namespace trireme::parquet
