// Where in a Parquet file something is read, and the errors that say so.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme::parquet {

// What is read ends before it is whole.
class EndsEarly : public DataError {
 public:
  using DataError::DataError;
};

struct Place {
  std::string file;
  std::string column;           // empty: the footer
  std::int64_t row_group = -1;  // from 0
  std::int64_t page = -1;       // offset in the file

  // "FILE: damaged: column C, row group N, page at byte B: WHAT".
  [[noreturn]] void damaged(std::string_view what) const;
  [[noreturn]] void ends_early() const;
  // "FILE: column C WHAT": nothing is wrong with the file, but this is not read.
  [[noreturn]] void refuse(std::string_view what) const;
  void check(bool sound, std::string_view what) const {
    if (!sound) [[unlikely]]
      damaged(what);
  }

 private:
  std::string text(std::string_view what) const;
};

}  // namespace trireme::parquet
