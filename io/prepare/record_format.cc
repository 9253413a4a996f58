#include "io/prepare/record_format.h"

#include <algorithm>
#include <array>
#include <cctype>
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
constexpr int kMostLines = 16;  // that are looked at
// Text with as many commas in each line is rare where there are so many lines.
constexpr std::size_t kTellingRows = 3;

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

// How the first lines look that are not empty.
struct FirstLines {
  bool first_is_object = false;
  int objects = 0, others = 0;
};

FirstLines look_at_lines(std::string_view text, bool is_whole) {
  FirstLines seen;
  while (seen.objects + seen.others < kMostLines && !text.empty()) {
    const std::size_t end = text.find('\n');
    const bool line_is_whole = end != std::string_view::npos || is_whole;
    const std::string_view line = trimmed(text.substr(0, end));
    text.remove_prefix(line_is_whole && end != std::string_view::npos ? end + 1 : text.size());
    if (line.empty()) continue;
    const bool is_object = opens_object(line) && (!line_is_whole || line.ends_with('}'));
    if (seen.objects + seen.others == 0) seen.first_is_object = is_object;
    ++(is_object ? seen.objects : seen.others);
  }
  return seen;
}

// Without a --field an object over several lines is plain text, as in a folder of sources. A first
// line that is broken may have good ones behind it.
bool is_json_lines(std::string_view text, bool is_whole, const RecordFields& fields) {
  if (fields.given && text.starts_with('{')) return true;
  const FirstLines seen = look_at_lines(text, is_whole);
  const int enough = fields.given ? 1 : 2;
  return seen.first_is_object || (seen.objects >= enough && seen.objects > seen.others);
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

bool are_names(const std::vector<std::string>& header) {
  return std::ranges::all_of(header, is_one_word) &&
         std::set<std::string>(header.begin(), header.end()).size() == header.size();
}

// "a/b.csv", also packed: "a/b.csv.gz".
bool has_ending(std::string_view name, std::string_view ending) {
  for (const std::string_view packed : {".gz", ".bz2", ".xz", ".zst"}) {
    if (name.ends_with(packed)) name.remove_suffix(packed.size());
  }
  return name.size() > ending.size() &&
         std::ranges::equal(name.substr(name.size() - ending.size()), ending,
                            [](unsigned char a, char b) { return std::tolower(a) == b; });
}

bool is_named_table(std::string_view name) {
  return has_ending(name, ".csv") || has_ending(name, ".tsv");
}

bool is_named_json(std::string_view name) {
  return has_ending(name, ".json") || has_ending(name, ".jsonl") || has_ending(name, ".ndjson");
}

bool is_table(const TableBeginning& table, std::string_view name, const RecordFields& fields) {
  const bool has_all = std::ranges::all_of(fields.names, [&](const std::string& field) {
    return std::ranges::find(table.header, field) != table.header.end();
  });
  if (!has_all) return false;
  if (fields.given) return true;
  if (table.header.size() == 1) return is_named_table(name);
  return are_names(table.header) || (table.alike > 0 && table.others == 0) || is_named_table(name);
}

// Whether people would call it a table, with the columns that were asked for or without.
bool looks_like_table(const TableBeginning& table, std::string_view name, bool asked) {
  if (table.header.size() < 2) return false;
  if (asked || is_named_table(name)) return table.alike >= table.others;
  return table.others == 0 && table.alike >= kTellingRows && are_names(table.header);
}

std::string no_field(const RecordFields& fields, const std::vector<std::string>& names) {
  return fmt::format("no field '{}', but {}: --field NAME, or --field none for text",
                     shown(fmt::format("{}", fmt::join(fields.names, ","))), list_of_names(names));
}

FoundRecords find_table(std::string_view name, std::string_view beginning, bool is_whole,
                        const RecordFields& fields) {
  FoundRecords found;
  if (!is_whole && beginning.find('\n') == std::string_view::npos) return found;
  std::optional<TableBeginning> seen;  // a table without the fields
  for (const char delimiter : {'\t', ',', ';'}) {
    const auto table = table_beginning(beginning, delimiter, is_whole);
    if (!table) continue;
    if (is_table(*table, name, fields)) return {RecordFormat::kTable, delimiter, {}, {}};
    const bool has_more = !seen || table->header.size() > seen->header.size();
    if (has_more && looks_like_table(*table, name, fields.given)) seen = table;
  }
  if (seen) {
    found.remark = "a table with " + no_field(fields, seen->header);
  } else if (is_named_table(name)) {
    found.remark = "no table, although it is called one";
  }
  return found;
}

bool may_be_one_object(std::string_view text) {
  const bool has_lines = trimmed(text).find('\n') != std::string_view::npos;
  return look_at_lines(text, true).first_is_object != has_lines;
}

// Where no record of a whole text has the fields, says so; not where one is broken.
void look_for_fields(FoundRecords& found, std::string_view text, const RecordFields& fields) {
  std::optional<JsonKeys> seen;
  const bool has_lines = found.format == RecordFormat::kJsonLines;
  while (!text.empty()) {
    const std::size_t end = has_lines ? std::min(text.find('\n'), text.size()) : text.size();
    const std::string_view record = trimmed(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
    if (record.empty()) continue;
    auto keys = json_keys(record, fields.names);
    if (!keys || keys->has_all) return;
    if (!seen) seen = std::move(keys);
  }
  if (seen) found.lacks = no_field(fields, seen->keys);
}

}  // namespace

FoundRecords find_records(std::string_view name, std::string_view beginning,
                          const RecordFields& fields) {
  if (fields.names.empty()) return {};
  const bool is_whole = beginning.size() < kSeenBytes;
  beginning = without_byte_order_mark(beginning);
  const std::string_view text =
      beginning.substr(std::min(beginning.find_first_not_of(kSpace), beginning.size()));
  FoundRecords found;
  if (is_json_array(text, is_whole, fields)) {
    found.format = RecordFormat::kJsonArray;
  } else if (is_json_lines(text, is_whole, fields)) {
    const bool is_one =
        is_whole && may_be_one_object(text) && json_keys(trimmed(text), fields.names);
    found.format = is_one ? RecordFormat::kJsonObject : RecordFormat::kJsonLines;
  }
  if (found.format != RecordFormat::kNone) {
    if (is_whole) look_for_fields(found, text, fields);
    return found;
  }
  found = find_table(name, beginning, is_whole, fields);
  if (found.format != RecordFormat::kNone) return found;
  if (found.remark.empty() && !text.empty() && is_named_json(name)) {
    found.remark = text.starts_with('{') ? "one JSON object over several lines"
                                         : "no records of JSON, although it is called so";
  }
  if (fields.given && !beginning.empty()) {
    found.lacks =
        fmt::format("--field {}: {}", shown(fmt::format("{}", fmt::join(fields.names, ","))),
                    found.remark.empty() ? "neither JSON nor a table with a header, but "
                                           "plain text"
                                         : found.remark);
  }
  return found;
}

std::unique_ptr<RecordSource> make_record_source(const FoundRecords& found, std::string file,
                                                 ByteStreamPtr stream, const RecordFields& fields) {
  switch (found.format) {
    case RecordFormat::kJsonLines:
      return make_json_lines(std::move(file), std::move(stream), fields.names);
    case RecordFormat::kJsonObject:
      return make_json_object(std::move(file), std::move(stream), fields.names);
    case RecordFormat::kJsonArray:
      return make_json_array(std::move(file), std::move(stream), fields.names);
    case RecordFormat::kTable:
      return make_table(std::move(file), std::move(stream), found.delimiter, fields.names);
    case RecordFormat::kNone:
      break;
  }
  throw InternalError("plain text has no records");
}

}  // namespace trireme
