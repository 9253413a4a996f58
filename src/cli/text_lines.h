// Texts that a command takes from files and from standard input: each line is one.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "trireme/base/files.h"

namespace trireme::cli {

struct NamedText {
  std::string name;  // "texts.txt:3", "line 3 of standard input"
  std::string text;
};

// A carriage return at the end of a line is no part of its text, and empty lines are left out.
class TextLines {
 public:
  // "-" is standard input.
  explicit TextLines(std::vector<std::string> files) : left_(std::move(files)) {}

  // Returns the next text; none after the last one. Throws DataError, which names the file.
  std::optional<NamedText> next();

 private:
  bool open_next();
  std::optional<NamedText> next_of_file();

  std::vector<std::string> left_;
  std::size_t next_ = 0;
  std::optional<FileReader> file_;  // that is being read
  std::string name_;
  std::int64_t line_ = 0;
};

}  // namespace trireme::cli
