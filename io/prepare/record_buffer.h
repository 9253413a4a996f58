// The part of a stream in which the next record is looked for.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/prepare/byte_stream.h"

namespace trireme {

class RecordBuffer {
 public:
  // So many bytes after those that rest() shows may be read, as simdjson does.
  static constexpr std::size_t kPadding = 64;

  // Leaves a byte order mark out.
  RecordBuffer(std::string name, ByteStreamPtr stream);

  const std::string& name() const { return name_; }
  std::string_view rest() const { return {bytes_.data() + begin_, end_ - begin_}; }
  // Reads more behind the rest, which moves it. Returns false at the end of the stream. Throws
  // DataError if the rest is longer than a record may be.
  bool more();
  // Takes bytes from the beginning of the rest, which stay where they are until more(). Throws for
  // too many, as well.
  std::string_view take(std::size_t count);
  // Passes over as many without a limit.
  void pass(std::size_t count);

  // Where the rest begins, counted from 1; columns are bytes.
  std::uint64_t line() const { return line_; }
  std::uint64_t column() const { return column_; }
  // "FILE: line 3, column 7", so many bytes after the beginning of a text that began there.
  std::string place(std::uint64_t line, std::uint64_t column) const;
  // What is wrong with a record that begins with the rest and is too long.
  std::string words_on_long_record() const;

 private:
  void check_size(std::size_t bytes) const;

  std::string name_;
  ByteStreamPtr stream_;
  std::vector<char> bytes_;
  std::size_t begin_ = 0, end_ = 0;
  bool ended_ = false;
  std::uint64_t line_ = 1, column_ = 1;
};

}  // namespace trireme
