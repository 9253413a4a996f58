// Reads rows of a Parquet file, row by row. What is held is a page of each column that is wanted,
// its dictionary, and the row.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "io/files/posix_file.h"
#include "io/parquet/column_cursor.h"
#include "io/parquet/metadata.h"
#include "io/parquet/schema.h"

namespace trireme::parquet {

// What a row has at a node of the schema.
struct Value {
  enum class Kind { kNull, kBytes, kRecord, kList };
  Kind kind = Kind::kNull;
  // kBytes: a text, a number in little-endian bytes, or a Boolean as a byte 0 or 1.
  std::string_view bytes;
  // The elements of a list; of a record, a value for each of its node's children.
  std::vector<Value> items;
};

class ParquetReader {
 public:
  // `fields` are dotted paths, "text" or "meta.body". Throws DataError, in one line that names the
  // file, where the footer is damaged or encrypted, and OtherFile where it has no such field.
  ParquetReader(PosixFile file, const std::vector<std::string>& fields);

  std::int64_t rows() const { return footer_.rows; }
  std::int64_t file_bytes() const { return file_.size(); }
  std::size_t row_groups() const { return footer_.groups.size(); }
  std::int64_t rows_of(std::size_t group) const { return footer_.groups[group].rows; }
  const Schema& schema() const { return footer_.schema; }
  // What the row has for each field, by the field's place in the constructor's list.
  const Node& node(std::size_t field) const { return *nodes_[field]; }
  // Reads rows of the groups [first, end) alone, from the first on.
  void seek(std::size_t first, std::size_t end);
  // The next row's value for each field, which stay until the next call. False after the last row.
  // Throws DataError where a page is damaged, or is encrypted or compressed or encoded in a way
  // that is not read.
  bool next(std::vector<Value>& row);

 private:
  bool open_group();
  void assemble(const Node& node, int least, Value& value);
  void assemble_list(const Node& node, Value& value);
  void pass(const Node& node, int definition);
  ColumnCursor& cursor(std::size_t leaf) { return *cursors_[first_cursor_ + leaf]; }

  PosixFile file_;
  Footer footer_;
  std::vector<const Node*> nodes_;
  std::size_t group_ = 0, end_group_;                   // group_: the one after the open one
  std::int64_t rows_left_ = 0;                          // in the open one
  std::vector<std::unique_ptr<ColumnCursor>> cursors_;  // by field, then leaf
  std::size_t first_cursor_ = 0;                        // leaf 0's, as seen from the field at hand
  std::size_t made_ = 0;                                // values of the row
};

}  // namespace trireme::parquet
