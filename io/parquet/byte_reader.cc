#include "io/parquet/byte_reader.h"

#include <fmt/format.h>

#include "trireme/base/printable.h"

namespace trireme::parquet {

std::string Place::text(std::string_view what) const {
  std::string where = column.empty() ? "footer" : "column " + shown(column);
  if (row_group >= 0) where += fmt::format(", row group {}", row_group);
  if (page >= 0) where += fmt::format(", page at byte {}", page);
  return fmt::format("{}: damaged: {}: {}", shown(file), where, what);
}

void Place::damaged(std::string_view what) const {
  throw DataError(text(what));
}

void Place::ends_early() const {
  throw EndsEarly(text("ends too early"));
}

void Place::refuse(std::string_view what) const {
  const std::string whose = column.empty() ? "" : "column " + shown(column) + " ";
  throw DataError(fmt::format("{}: {}{}", shown(file), whose, what));
}

}  // namespace trireme::parquet
