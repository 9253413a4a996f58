// Records, as JSON, tables and Parquet have them: each gives the texts of the fields that were
// asked for.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {

// One record is no good, and the one after it can be read: --skip-bad leaves it out.
class BadRecord : public DataError {
 public:
  using DataError::DataError;
};

class RecordSource {
 public:
  // A record of more bytes is refused, so that memory has a bound.
  static constexpr std::size_t kMostBytes = std::size_t{64} << 20;

  virtual ~RecordSource() = default;

  // Goes on to the next record and sets `fields` to its texts, one for each name, valid until the
  // next call. Returns false after the last one. Throws BadRecord, or another DataError where the
  // rest cannot be read; both name the file, the line and the column.
  virtual bool next(std::vector<std::string_view>& fields) = 0;
};

// "'id', 'title'", or the first of many.
std::string list_of_names(const std::vector<std::string>& names);

}  // namespace trireme
