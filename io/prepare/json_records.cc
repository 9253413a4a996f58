#include "io/prepare/json_records.h"

#include <algorithm>
#include <charconv>
#include <optional>
#include <utility>

#include <fmt/format.h>
#include <simdjson.h>

#include "trireme/base/json.h"
#include "trireme/base/printable.h"

#include "io/prepare/record_buffer.h"

namespace trireme {
namespace {

namespace dom = simdjson::dom;

static_assert(simdjson::SIMDJSON_PADDING <= RecordBuffer::kPadding);

std::string_view kind_of(const dom::element& value) {
  switch (value.type()) {
    case dom::element_type::ARRAY:
      return "an array";
    case dom::element_type::OBJECT:
      return "an object";
    case dom::element_type::STRING:
      return "a string";
    case dom::element_type::BOOL:
      return "true or false";
    case dom::element_type::NULL_VALUE:
      return "null";
    default:
      return "a number";
  }
}

std::vector<std::string> keys_of(const dom::object& object) {
  std::vector<std::string> keys;
  for (const auto field : object) keys.emplace_back(field.key);
  return keys;
}

bool is_digit(char c) {
  return c >= '0' && c <= '9';
}

// The size of the number at the beginning of a text; 0 where JSON has none like it, nor Python's.
std::size_t number_size(std::string_view text) {
  for (const std::string_view word : {"NaN", "Infinity", "-Infinity"}) {
    if (text.starts_with(word)) return word.size();
  }
  std::size_t at = text.starts_with('-') ? 1 : 0;
  const auto digits = [&] {
    const std::size_t begin = at;
    while (at < text.size() && is_digit(text[at])) ++at;
    return at - begin;
  };
  const bool zero = text.substr(at).starts_with('0');
  const std::size_t whole = digits();
  if (whole == 0 || (zero && whole > 1)) return 0;
  if (text.substr(at).starts_with('.')) {
    ++at;
    if (digits() == 0) return 0;
  }
  if (at < text.size() && (text[at] == 'e' || text[at] == 'E')) {
    ++at;
    if (at < text.size() && (text[at] == '+' || text[at] == '-')) ++at;
    if (digits() == 0) return 0;
  }
  return at;
}

// A JSON text in which numbers have become zeros, and all else stays where it is.
std::string without_numbers(std::string_view from) {
  std::string text(from);
  bool in_string = false;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] == '"') in_string = !in_string;
    if (in_string && text[at] == '\\') ++at;
    if (in_string) continue;
    const std::size_t size = number_size(std::string_view(text).substr(at));
    if (size == 0) continue;
    text.replace(at, size, size, ' ');
    text[at] = '0';
    at += size - 1;
  }
  return text;
}

// One object, as a text in a buffer, to the texts of its fields.
class JsonRecord {
 public:
  explicit JsonRecord(std::vector<std::string> names) : names_(std::move(names)) {}

  // Throws JsonError that begins with "line 1, column 3: ", of the text, or with ": ".
  void read(std::string_view text, std::vector<std::string_view>& fields) {
    dom::object object;
    const dom::element root = parse(text);
    if (root.get(object) != simdjson::SUCCESS) {
      throw JsonError(fmt::format(": {} where an object is expected", kind_of(root)));
    }
    fields.resize(names_.size());
    for (std::size_t i = 0; i < names_.size(); ++i) fields[i] = text_of(object, names_[i]);
  }

  std::optional<JsonKeys> keys(std::string_view text) {
    dom::element root;
    dom::array array;
    again_ = without_numbers(text);
    if (parser_.parse(again_).get(root) != simdjson::SUCCESS) return {};
    if (root.get(array) != simdjson::SUCCESS) return keys_of_one(root);
    std::optional<JsonKeys> seen;
    for (const dom::element element : array) {
      std::optional<JsonKeys> more = keys_of_one(element);
      if (!more || more->has_all) return more;
      if (!seen) seen = std::move(more);
    }
    return seen;
  }

 private:
  std::optional<JsonKeys> keys_of_one(const dom::element& element) const {
    dom::object object;
    dom::element value;
    if (element.get(object) != simdjson::SUCCESS) return {};
    return JsonKeys{keys_of(object), std::ranges::all_of(names_, [&](const std::string& name) {
                      return find(object, name, value);
                    })};
  }
  // simdjson refuses numbers that are too large for it, and NaN, which are no texts. What else it
  // refuses the slower reader may take, or it knows where the fault is.
  dom::element parse(std::string_view text) {
    dom::element root;
    if (parser_.parse(text.data(), text.size(), false).get(root) == simdjson::SUCCESS) return root;
    again_ = without_numbers(text);
    if (parser_.parse(again_).get(root) == simdjson::SUCCESS) return root;
    again_ = Json::parse(again_).dump();
    if (const auto error = parser_.parse(again_).get(root)) {
      throw JsonError(fmt::format(": {}", simdjson::error_message(error)));
    }
    return root;
  }

  // The last member of a name counts, as elsewhere.
  static bool find(const dom::object& object, std::string_view name, dom::element& found) {
    bool is_there = false;
    for (const auto field : object) {
      if (field.key != name) continue;
      found = field.value;
      is_there = true;
    }
    if (is_there) return true;
    // "a.b.c" is b.c in a, or c in a.b.
    for (const auto field : object) {
      dom::object inner;
      if (name.size() > field.key.size() && name[field.key.size()] == '.' &&
          name.starts_with(field.key) && field.value.get(inner) == simdjson::SUCCESS) {
        is_there = find(inner, name.substr(field.key.size() + 1), found) || is_there;
      }
    }
    return is_there;
  }

  static std::string_view text_of(const dom::object& object, const std::string& name) {
    dom::element value;
    if (!find(object, name, value)) {
      throw JsonError(fmt::format(": no field '{}', but {}: --field NAME, or --field none for text",
                                  shown(name), list_of_names(keys_of(object))));
    }
    std::string_view text;
    if (value.get(text) != simdjson::SUCCESS) {
      throw JsonError(
          fmt::format(": the field '{}' is {}, not a string", shown(name), kind_of(value)));
    }
    return text;
  }

  std::vector<std::string> names_;
  dom::parser parser_;
  std::string again_;
};

// Reads a number behind a word and removes both.
bool take_number(std::string_view& words, std::string_view before, std::uint64_t& number) {
  if (!words.starts_with(before)) return false;
  words.remove_prefix(before.size());
  const auto [end, error] = std::from_chars(words.data(), words.data() + words.size(), number);
  words.remove_prefix(static_cast<std::size_t>(end - words.data()));
  return error == std::errc();
}

// So many bytes are in a line of a text, counted from 1.
std::uint64_t size_of_line(std::string_view text, std::uint64_t line) {
  for (; line > 1; --line) text.remove_prefix(std::min(text.find('\n'), text.size() - 1) + 1);
  return std::min(text.find('\n'), text.size());
}

class JsonSource : public RecordSource {
 public:
  JsonSource(std::string file, ByteStreamPtr stream, std::vector<std::string> names)
      : buffer_(std::move(file), std::move(stream)), record_(std::move(names)) {}

 protected:
  void read(std::string_view text, std::vector<std::string_view>& fields, std::uint64_t line,
            std::uint64_t column) {
    try {
      record_.read(text, fields);
    } catch (const JsonError& error) {
      throw BadRecord(words_of(error.what(), text, line, column));
    }
  }

  RecordBuffer buffer_;

 private:
  // "parse error at line 1, column 12: ..." says where in the record.
  std::string words_of(std::string_view words, std::string_view text, std::uint64_t line,
                       std::uint64_t column) const {
    constexpr std::size_t kMostWords = 400;
    std::uint64_t in_line = 0, in_column = 0;
    if (take_number(words, "parse error at line ", in_line) &&
        take_number(words, ", column ", in_column)) {
      const std::size_t last = words.find("; last read: ");
      if (in_column == 0 && in_line > 1) in_column = size_of_line(text, --in_line) + 1;
      return fmt::format(
          "{}: broken JSON{}",
          buffer_.place(line + in_line - 1, in_line == 1 ? column + in_column - 1 : in_column),
          shown(words.substr(0, last), kMostWords));
    }
    return fmt::format("{}{}{}", buffer_.place(line, column),
                       words.starts_with(": ") ? "" : ": broken JSON: ", shown(words, kMostWords));
  }

  JsonRecord record_;
};

constexpr std::string_view kSpace = " \t\r\n";

bool is_space(char c) {
  return kSpace.find(c) != std::string_view::npos;
}

class JsonLines final : public JsonSource {
 public:
  using JsonSource::JsonSource;

  bool next(std::vector<std::string_view>& fields) override {
    while (true) {
      const std::size_t size = line_size();
      if (size == 0) return false;
      if (size > kMostBytes) pass_long_line();
      const std::uint64_t line = buffer_.line();
      const std::string_view text = buffer_.take(size);
      const std::size_t first = text.find_first_not_of(kSpace);
      if (first == std::string_view::npos) continue;
      const std::size_t end = text.find_last_not_of(kSpace) + 1;
      read(text.substr(first, end - first), fields, line, first + 1);
      return true;
    }
  }

 private:
  // With its newline; 0 at the end; of a line that is too long only so much as shows it.
  std::size_t line_size() {
    for (std::size_t looked_at = 0;;) {
      const std::size_t end = buffer_.rest().find('\n', looked_at);
      if (end != std::string_view::npos) return end + 1;
      looked_at = buffer_.rest().size();
      if (looked_at > kMostBytes || !buffer_.more()) return looked_at;
    }
  }

  [[noreturn]] void pass_long_line() {
    const std::string words = buffer_.words_on_long_record();
    do {
      const std::size_t end = buffer_.rest().find('\n');
      const bool ends = end != std::string_view::npos;
      buffer_.pass(ends ? end + 1 : buffer_.rest().size());
      if (ends) break;
    } while (buffer_.more());
    throw BadRecord(words);
  }
};

class JsonObject final : public JsonSource {
 public:
  using JsonSource::JsonSource;

  bool next(std::vector<std::string_view>& fields) override {
    while (buffer_.more()) {
    }
    const std::size_t first = buffer_.rest().find_first_not_of(kSpace);
    if (first == std::string_view::npos) return false;
    buffer_.take(first);
    const std::uint64_t line = buffer_.line(), column = buffer_.column();
    read(buffer_.take(buffer_.rest().size()), fields, line, column);
    return true;
  }
};

class JsonArray final : public JsonSource {
 public:
  using JsonSource::JsonSource;

  bool next(std::vector<std::string_view>& fields) override {
    if (ended_) return false;
    const bool is_first = !std::exchange(begun_, true);
    if (is_first) expect("[");
    const char ahead = skip_space();
    if (ahead == ']' && (is_first || after_item_)) return end();
    if (!is_first) {
      if (ahead != ',') refuse("',' or ']' after a record");
      buffer_.take(1);
      skip_space();
    }
    const std::uint64_t line = buffer_.line(), column = buffer_.column();
    const std::size_t size = item_size();
    after_item_ = true;
    read(buffer_.take(size), fields, line, column);
    return true;
  }

 private:
  // Returns the next character that is not space; '\0' at the end.
  char skip_space() {
    while (true) {
      const std::string_view rest = buffer_.rest();
      std::size_t size = 0;
      while (size < rest.size() && is_space(rest[size])) ++size;
      const bool found = size < rest.size();
      buffer_.take(size);
      if (found) return buffer_.rest().front();
      if (!buffer_.more()) return '\0';
    }
  }
  void expect(std::string_view character) {
    if (skip_space() != character.front()) refuse(fmt::format("'{}'", character));
    buffer_.take(1);
  }
  [[noreturn]] void refuse(std::string_view expected) const {
    const std::string_view rest = buffer_.rest();
    throw DataError(fmt::format(
        "{}: broken JSON: {} instead of {}", buffer_.place(buffer_.line(), buffer_.column()),
        rest.empty() ? "the end of the file" : fmt::format("'{}'", shown(rest.substr(0, 1))),
        expected));
  }
  bool end() {
    buffer_.take(1);
    ended_ = true;
    if (skip_space() != '\0' || !buffer_.rest().empty()) refuse("the end after the array");
    return false;
  }

  // The bytes of a value, up to the comma or bracket after it.
  std::size_t item_size() {
    std::size_t depth = 0;
    for (std::size_t at = 0;; ++at) {
      if (at == buffer_.rest().size() && !buffer_.more()) refuse_cut();
      const char c = buffer_.rest()[at];
      if (c == '"') at = end_of_text(at + 1);
      if (depth == 0 && (c == ',' || c == ']')) return at;
      if (c == '{' || c == '[') ++depth;
      if ((c == '}' || c == ']') && (depth == 0 || --depth == 0)) return at + 1;
    }
  }

  // The quote that ends a text which begins here: one that no backslash escapes.
  std::size_t end_of_text(std::size_t begin) {
    for (std::size_t from = begin;;) {
      const std::size_t quote = buffer_.rest().find('"', from);
      if (quote == std::string_view::npos) {
        from = buffer_.rest().size();
        if (!buffer_.more()) refuse_cut();
        continue;
      }
      std::size_t first = quote;
      while (first > begin && buffer_.rest()[first - 1] == '\\') --first;
      if ((quote - first) % 2 == 0) return quote;
      from = quote + 1;
    }
  }
  [[noreturn]] void refuse_cut() {
    buffer_.take(buffer_.rest().size());
    refuse("the rest of a record");
  }

  bool begun_ = false, after_item_ = false, ended_ = false;
};

}  // namespace

std::unique_ptr<RecordSource> make_json_lines(std::string file, ByteStreamPtr stream,
                                              std::vector<std::string> names) {
  return std::make_unique<JsonLines>(std::move(file), std::move(stream), std::move(names));
}

std::unique_ptr<RecordSource> make_json_object(std::string file, ByteStreamPtr stream,
                                               std::vector<std::string> names) {
  return std::make_unique<JsonObject>(std::move(file), std::move(stream), std::move(names));
}

std::optional<JsonKeys> json_keys(std::string_view text, const std::vector<std::string>& names) {
  return JsonRecord(names).keys(text);
}

std::unique_ptr<RecordSource> make_json_array(std::string file, ByteStreamPtr stream,
                                              std::vector<std::string> names) {
  return std::make_unique<JsonArray>(std::move(file), std::move(stream), std::move(names));
}

}  // namespace trireme
