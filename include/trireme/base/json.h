// A JSON value, its reader and its writer. Only json.cc includes the library behind them, because
// its header adds some ten seconds of compilation to every file that includes it.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace trireme {

// The text is not JSON, or the value does not have what was asked for. The caller knows the name of
// the file and turns this into an Error.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Null, a boolean, a number, a string, an array or an object. The members of an object keep their
// order.
class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  Json() = default;  // null
  // Takes only a bool, because every pointer converts to one.
  Json(std::same_as<bool> auto value);
  Json(int value);
  Json(std::int64_t value);
  Json(std::uint64_t value);
  Json(double value);
  Json(const char* value);
  Json(std::string_view value);
  Json(std::string value);

  static Json array(std::initializer_list<Json> items = {});
  static Json object(std::initializer_list<Member> members = {});
  static Json object(Object members);  // whose keys differ; fast for many

  // These throw JsonError. A key that occurs twice has its last value. More than 200 levels of
  // nesting are refused.
  static Json parse(std::string_view text);
  // The same, but a key that occurs twice is an error.
  static Json parse_unique(std::string_view text);
  static Json from_cbor(std::string_view bytes);
  // Returns null if `text` is not JSON.
  static Json parse_or_null(std::string_view text);

  // Writes doubles with the fewest digits that read back to the same value, NaN and infinity as
  // null, and bytes that are not UTF-8 as U+FFFD. With an indent of 0 or more, every member is on
  // its own line.
  std::string dump(int indent = -1) const;
  // Writes CBOR, a binary format in which strings may hold any bytes.
  std::string to_cbor() const;

  bool is_text() const { return std::holds_alternative<std::string>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_integer() const {
    return std::holds_alternative<std::int64_t>(value_) ||
           std::holds_alternative<std::uint64_t>(value_);
  }

  // These throw JsonError if the value is of another kind or does not fit.
  bool boolean() const;
  std::int64_t integer() const;  // also accepts a double with an integral value
  std::uint64_t unsigned_integer() const;
  int small_integer() const;
  double number() const;
  const std::string& text() const;
  const Array& items() const;     // of an array
  const Object& members() const;  // of an object

  // These throw JsonError if there is no such item or member.
  const Json& at(std::size_t index) const;
  const Json& at(std::string_view key) const;
  // Returns nullptr if this is not an object or has no such member.
  const Json* find(std::string_view key) const;

  // Appends an item to an array. A null value becomes an array first.
  void push_back(Json item);
  // Returns the member of that name; adds it as null if it is missing. A null value becomes an
  // object first.
  Json& operator[](std::string_view key);

 private:
  friend class JsonReader;
  friend struct JsonWriter;

  std::variant<std::monostate, bool, std::int64_t, std::uint64_t, double, std::string, Array,
               Object>
      value_;
};

struct Json::Member {
  std::string key;
  Json value;
};

// Constructors may destroy the vectors of members, so these are complete by now.
inline Json::Json(std::same_as<bool> auto value) : value_(value) {}
inline Json::Json(int value) : value_(std::int64_t{value}) {}
inline Json::Json(std::int64_t value) : value_(value) {}
inline Json::Json(std::uint64_t value) : value_(value) {}
inline Json::Json(double value) : value_(value) {}
inline Json::Json(const char* value) : value_(std::string(value)) {}
inline Json::Json(std::string_view value) : value_(std::string(value)) {}
inline Json::Json(std::string value) : value_(std::move(value)) {}

}  // namespace trireme
