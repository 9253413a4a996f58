// A JSON value, its reader and its writer. The library behind them is included in json.cc alone,
// because its header costs every file that includes it some ten seconds of compilation.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace trireme {

// A text that is not JSON, or a value that lacks what is asked of it. The caller knows which file
// that is and turns it into an Error.
class JsonError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Null, a truth value, a number, a text, an array or an object, whose members keep their order.
class Json {
 public:
  struct Member;
  using Array = std::vector<Json>;
  using Object = std::vector<Member>;

  Json() = default;  // null
  // Only a bool, since every pointer converts to one.
  Json(std::same_as<bool> auto value) : value_(value) {}
  Json(int value) : value_(std::int64_t{value}) {}
  Json(std::int64_t value) : value_(value) {}
  Json(std::uint64_t value) : value_(value) {}
  Json(double value) : value_(value) {}
  Json(const char* value) : value_(std::string(value)) {}
  Json(std::string_view value) : value_(std::string(value)) {}
  Json(std::string value) : value_(std::move(value)) {}

  static Json array(std::initializer_list<Json> items = {});
  static Json object(std::initializer_list<Member> members = {});

  // Throw JsonError. A key that stands twice has its last value; more than 200 levels are refused.
  static Json parse(std::string_view text);
  static Json from_cbor(std::string_view bytes);
  // Null where `text` is not JSON.
  static Json parse_or_null(std::string_view text);

  // Doubles in the fewest digits that read back alike, NaN and infinity as null, bytes that are not
  // UTF-8 as U+FFFD. With an indent of 0 or more every member has a line of its own.
  std::string dump(int indent = -1) const;
  // A binary form in which texts may hold any bytes.
  std::string to_cbor() const;

  bool is_text() const { return std::holds_alternative<std::string>(value_); }
  bool is_object() const { return std::holds_alternative<Object>(value_); }
  bool is_array() const { return std::holds_alternative<Array>(value_); }
  bool is_number() const { return is_integer() || std::holds_alternative<double>(value_); }
  bool is_integer() const {
    return std::holds_alternative<std::int64_t>(value_) ||
           std::holds_alternative<std::uint64_t>(value_);
  }

  // Throw JsonError where the value is of another kind, or does not fit.
  bool boolean() const;
  std::int64_t integer() const;  // also of a double that is whole
  std::uint64_t unsigned_integer() const;
  int small_integer() const;
  double number() const;
  const std::string& text() const;
  const Array& items() const;     // of an array
  const Object& members() const;  // of an object

  // Throw JsonError where there is no such item or member.
  const Json& at(std::size_t index) const;
  const Json& at(std::string_view key) const;
  // Nothing where this is no object or has no such member.
  const Json* find(std::string_view key) const;

  // Adds an item to an array; makes one of null.
  void push_back(Json item);
  // The member of that name, added as null where there is none; makes an object of null.
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

}  // namespace trireme
