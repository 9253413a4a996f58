#include "io/prepare/record_format.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/byte_order_mark.h"
#include "trireme/base/error.h"
#include "trireme/base/printable.h"

#include "io/prepare/json_records.h"
#include "io/prepare/table_records.h"

namespace trireme {
namespace {

constexpr std::string_view kSpace = " \t\r\n";

std::string_view trimmed(std::string_view text) {
  const std::size_t first = std::min(text.find_first_not_of(kSpace), text.size());
  const std::size_t last = text.find_last_not_of(kSpace);
  return last == std::string_view::npos ? std::string_view() : text.substr(first, last + 1 - first);
}

// Whether a bracket is followed by what an object has inside.
bool opens_object(std::string_view text) {
  if (!text.starts_with('{')) return false;
  const std::string_view inside = trimmed(text.substr(1));
  return inside.starts_with('"') || inside.starts_with('}');
}

// Without a --field an object over several lines is plain text, as in a folder of sources.
bool is_json_lines(std::string_view text, bool is_whole, const RecordFields& fields) {
  if (fields.given) return text.starts_with('{');
  const std::size_t end = text.find('\n');
  const bool line_is_whole = end != std::string_view::npos || is_whole;
  const std::string_view line = trimmed(text.substr(0, end));
  return opens_object(line) && (!line_is_whole || line.ends_with('}'));
}

bool is_json_array(std::string_view text, bool is_whole, const RecordFields& fields) {
  if (!text.starts_with('[')) return false;
  const std::string_view inside = trimmed(text.substr(1));
  if (fields.given || opens_object(inside)) return true;
  return is_whole && inside == "]";
}

bool is_one_word(const std::string& name) {
  return !name.empty() && name.find_first_of(" \t\r\"'") == std::string::npos;
}

bool is_table(std::string_view text, bool is_whole, char delimiter, const RecordFields& fields) {
  if (!is_whole && text.find('\n') == std::string_view::npos) return false;
  const auto header = table_header(text, delimiter);
  if (!header) return false;
  const std::set<std::string> columns(header->begin(), header->end());
  const bool has_all = std::ranges::all_of(
      fields.names, [&](const std::string& name) { return columns.contains(name); });
  if (!has_all || columns.size() != header->size()) return false;
  return fields.given || (header->size() > 1 && std::ranges::all_of(*header, is_one_word));
}

}  // namespace

RecordFormat record_format(std::string_view beginning, const RecordFields& fields) {
  if (fields.names.empty()) return RecordFormat::kNone;
  const bool is_whole = beginning.size() < kSeenBytes;
  beginning = without_byte_order_mark(beginning);
  const std::string_view text =
      beginning.substr(std::min(beginning.find_first_not_of(kSpace), beginning.size()));
  if (is_json_lines(text, is_whole, fields)) return RecordFormat::kJsonLines;
  if (is_json_array(text, is_whole, fields)) return RecordFormat::kJsonArray;
  if (is_table(beginning, is_whole, '\t', fields)) return RecordFormat::kTsv;
  if (is_table(beginning, is_whole, ',', fields)) return RecordFormat::kCsv;
  return RecordFormat::kNone;
}

void check_plain_is_meant(const std::string& name, std::string_view beginning,
                          const RecordFields& fields) {
  if (!fields.given || fields.names.empty() || beginning.empty()) return;
  std::string columns;
  for (const char delimiter : {',', '\t'}) {
    const auto header = table_header(beginning, delimiter);
    if (header && header->size() > 1)
      columns = ", and its first line has " + list_of_names(*header);
  }
  throw DataError(
      fmt::format("{}: --field {}: it holds no JSON, nor is this in a header of CSV or "
                  "TSV{}",
                  shown(name), shown(fmt::format("{}", fmt::join(fields.names, ","))), columns));
}

std::unique_ptr<RecordSource> make_record_source(RecordFormat format, std::string file,
                                                 ByteStreamPtr stream, const RecordFields& fields) {
  switch (format) {
    case RecordFormat::kJsonLines:
      return make_json_lines(std::move(file), std::move(stream), fields.names);
    case RecordFormat::kJsonArray:
      return make_json_array(std::move(file), std::move(stream), fields.names);
    case RecordFormat::kCsv:
    case RecordFormat::kTsv:
      return make_table(std::move(file), std::move(stream),
                        format == RecordFormat::kCsv ? ',' : '\t', fields.names);
    case RecordFormat::kNone:
      break;
  }
  throw InternalError("plain text has no records");
}

}  // namespace trireme
