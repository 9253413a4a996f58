#include "io/prepare/table_records.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/byte_order_mark.h"
#include "trireme/base/printable.h"

#include "io/prepare/record_buffer.h"

namespace trireme {
namespace {

// Finds the end of a record whose bytes come bit by bit.
class RecordEnd {
 public:
  explicit RecordEnd(char delimiter) : delimiter_(delimiter) {}

  // Returns the size of the record at the beginning of `text`, with its newline, or npos where it
  // goes on behind it. Called again with a longer text, it goes on where it was.
  std::size_t look(std::string_view text) {
    while (at_ < text.size()) {
      if (quoted_) {
        at_ = std::min(text.find('"', at_), text.size());
        if (at_ == text.size()) break;
        quoted_ = false;
        is_first_ = false;
        ++at_;
        // A second one goes on: it is a quote.
        if (at_ < text.size() && text[at_] == '"') quoted_ = true, ++at_;
        if (at_ == text.size()) may_go_on_ = true;
        continue;
      }
      const char c = text[at_++];
      if (c == '\n') return at_;
      if (c == '"' && (is_first_ || std::exchange(may_go_on_, false))) quoted_ = true;
      is_first_ = c == delimiter_;
      may_go_on_ = false;
    }
    return std::string_view::npos;
  }
  bool quoted() const { return quoted_; }

 private:
  char delimiter_;
  std::size_t at_ = 0;
  bool is_first_ = true;    // a field begins here
  bool quoted_ = false;     // inside of quotes
  bool may_go_on_ = false;  // the text ended after a quote, which a second one may follow
};

std::string_view without_line_end(std::string_view line) {
  if (line.ends_with('\n')) line.remove_suffix(1);
  if (line.ends_with('\r')) line.remove_suffix(1);
  return line;
}

// Takes a field in quotes, and both, from the beginning of `line`.
std::string unquoted(std::string_view& line) {
  std::string text;
  line.remove_prefix(1);
  while (true) {
    const std::size_t quote = std::min(line.find('"'), line.size());
    text += line.substr(0, quote);
    line.remove_prefix(std::min(quote + 1, line.size()));
    if (!line.starts_with('"')) return text;
    text += '"';
    line.remove_prefix(1);
  }
}

// Returns the number of fields. Sets the first ones of `fields`; `owned` holds those that had
// quotes. 0: something follows a closing quote.
std::size_t split(std::string_view line, char delimiter, std::vector<std::string_view>& fields,
                  std::vector<std::string>& owned) {
  fields.clear();
  owned.clear();
  owned.reserve(static_cast<std::size_t>(std::ranges::count(line, delimiter)) + 1);  // stay put
  while (true) {
    if (line.starts_with('"')) {
      owned.push_back(unquoted(line));
      fields.push_back(owned.back());
      if (line.empty()) return fields.size();
      if (line.front() != delimiter) return 0;
      line.remove_prefix(1);
      continue;
    }
    const std::size_t end = line.find(delimiter);
    fields.push_back(line.substr(0, end));
    if (end == std::string_view::npos) return fields.size();
    line.remove_prefix(end + 1);
  }
}

std::vector<std::string> names_of(const std::vector<std::string_view>& fields) {
  std::vector<std::string> names;
  for (const std::string_view field : fields) {
    const std::size_t first = std::min(field.find_first_not_of(' '), field.size());
    names.emplace_back(field.substr(first, field.find_last_not_of(' ') + 1 - first));
  }
  return names;
}

class Table final : public RecordSource {
 public:
  Table(std::string file, ByteStreamPtr stream, char delimiter,
        const std::vector<std::string>& names)
      : buffer_(std::move(file), std::move(stream)), delimiter_(delimiter) {
    std::string_view line;
    TRIREME_CHECK(take_line(line) && split(line, delimiter_, fields_, owned_) > 0,
                  "a table without a header");
    columns_ = fields_.size();
    const std::vector<std::string> header = names_of(fields_);
    for (const std::string& name : names) {
      const auto found = std::ranges::find(header, name);
      TRIREME_CHECK(found != header.end(), "a table without a column that it has");
      if (std::find(found + 1, header.end(), name) != header.end()) {
        throw DataError(fmt::format("{}: line 1: two columns are called '{}'; rename one of them",
                                    shown(buffer_.name()), shown(name)));
      }
      places_.push_back(static_cast<std::size_t>(found - header.begin()));
    }
  }

  bool next(std::vector<std::string_view>& fields) override {
    std::string_view line;
    do {
      line_ = buffer_.line();
      if (!take_line(line)) return false;
    } while (line.empty());
    const std::size_t count = split(line, delimiter_, fields_, owned_);
    if (count == 0)
      refuse("a quote ends a field, and neither a delimiter nor the line's end follows");
    if (count != columns_) {
      refuse(fmt::format("{} fields, and {} in the header", count, columns_));
    }
    fields.resize(places_.size());
    for (std::size_t i = 0; i < places_.size(); ++i) fields[i] = fields_[places_[i]];
    return true;
  }

 private:
  bool take_line(std::string_view& line) {
    RecordEnd end(delimiter_);
    std::size_t size = 0;
    while ((size = end.look(buffer_.rest())) == std::string_view::npos) {
      if (buffer_.more()) continue;
      size = buffer_.rest().size();
      if (end.quoted()) {
        throw DataError(fmt::format("{}: line {}: a quoted field that does not end",
                                    shown(buffer_.name()), buffer_.line()));
      }
      if (size == 0) return false;
      break;
    }
    line = without_line_end(buffer_.take(size));
    return true;
  }
  [[noreturn]] void refuse(const std::string& words) const {
    throw BadRecord(fmt::format("{}: line {}: {}", shown(buffer_.name()), line_, words));
  }

  RecordBuffer buffer_;
  char delimiter_;
  std::size_t columns_ = 0;
  std::vector<std::size_t> places_;  // of the fields that were asked for
  std::uint64_t line_ = 1;
  std::vector<std::string_view> fields_;
  std::vector<std::string> owned_;
};

}  // namespace

std::unique_ptr<RecordSource> make_table(std::string file, ByteStreamPtr stream, char delimiter,
                                         std::vector<std::string> names) {
  return std::make_unique<Table>(std::move(file), std::move(stream), delimiter, names);
}

std::optional<TableBeginning> table_beginning(std::string_view beginning, char delimiter,
                                              bool is_whole) {
  constexpr std::size_t kMostRows = 16;
  std::vector<std::string_view> fields;
  std::vector<std::string> owned;
  TableBeginning table;
  beginning = without_byte_order_mark(beginning);
  while (table.alike + table.others < kMostRows && !beginning.empty()) {
    RecordEnd end(delimiter);
    const std::size_t size = end.look(beginning);
    if (size == std::string_view::npos && (end.quoted() || !is_whole)) break;
    const std::string_view line = without_line_end(beginning.substr(0, size));
    beginning.remove_prefix(std::min(size, beginning.size()));
    if (table.header.empty()) {
      if (split(line, delimiter, fields, owned) == 0) return {};
      table.header = names_of(fields);
    } else if (!line.empty()) {
      const bool is_alike = split(line, delimiter, fields, owned) == table.header.size();
      ++(is_alike ? table.alike : table.others);
    }
  }
  if (table.header.empty()) return {};
  return table;
}

}  // namespace trireme
