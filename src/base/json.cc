#include "trireme/base/json.h"

#include <limits>
#include <unordered_set>
#include <utility>

#include <nlohmann/json.hpp>

#include "trireme/base/printable.h"

namespace trireme {

using Library = nlohmann::ordered_json;

// Receives values as the library reads them, so that the library never builds a tree of its own.
class JsonReader : public nlohmann::json_sax<Library> {
 public:
  // `unique`: refuses a key that occurs twice in an object.
  explicit JsonReader(bool unique) : unique_(unique) {}

  bool null() override { return take(Json()); }
  bool boolean(bool value) override { return take(value); }
  bool number_integer(number_integer_t value) override { return take(value); }
  bool number_unsigned(number_unsigned_t value) override {
    const bool fits = value <= static_cast<std::uint64_t>(std::numeric_limits<std::int64_t>::max());
    return take(fits ? Json(static_cast<std::int64_t>(value)) : Json(value));
  }
  bool number_float(number_float_t value, const string_t&) override { return take(value); }
  bool string(string_t& value) override { return take(std::move(value)); }
  bool binary(binary_t&) override { throw JsonError("binary data where JSON was expected"); }
  bool key(string_t& name) override {
    key_ = std::move(name);
    return true;
  }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t, const std::string& last,
                   const nlohmann::detail::exception& error) override {
    // "[json.exception.parse_error.101] parse error at line 1, column 1: ..."
    const std::string words = error.what();
    const std::size_t label = words.find("] ");
    // Python writes them, and reads them again.
    const bool is_no_number = last.ends_with('N') || last.ends_with('I');
    throw JsonError((label == std::string::npos ? words : words.substr(label + 2)) +
                    (is_no_number ? " (NaN and Infinity are not JSON)" : ""));
  }

  Json root;

 private:
  static constexpr std::size_t kDeepest = 200;

  bool take(Json value) {
    place(std::move(value));
    return true;
  }
  bool open(Json value) {
    if (open_.size() == kDeepest) throw JsonError("nested too deeply");
    // The items of an open value can move only while none of them is open.
    open_.push_back(&place(std::move(value)));
    if (unique_) keys_.emplace_back();
    return true;
  }
  bool close() {
    open_.pop_back();
    if (unique_) keys_.pop_back();
    return true;
  }
  Json& place(Json value) {
    if (open_.empty()) return root = std::move(value);
    Json& parent = *open_.back();
    if (parent.is_object() && unique_) {
      if (!keys_.back().insert(key_).second) {
        throw JsonError("the key '" + shown(key_) + "' occurs twice");
      }
      auto& members = std::get<Json::Object>(parent.value_);
      return members.emplace_back(key_, std::move(value)).value;
    }
    if (parent.is_object()) return parent[key_] = std::move(value);
    parent.push_back(std::move(value));
    return std::get<Json::Array>(parent.value_).back();
  }

  const bool unique_;
  std::vector<Json*> open_;
  std::vector<std::unordered_set<std::string>> keys_;  // of each open value, where unique_
  std::string key_;
};

struct JsonWriter {
  static Library library_value(const Json& json) { return std::visit(JsonWriter(), json.value_); }

  Library operator()(std::monostate) const { return {}; }
  Library operator()(const Json::Array& items) const {
    Library array = Library::array();
    for (const Json& item : items) array.push_back(library_value(item));
    return array;
  }
  Library operator()(const Json::Object& members) const {
    Library object = Library::object();
    auto& all = object.get_ref<Library::object_t&>();
    all.reserve(members.size());
    // The object is filled as the vector that it is: its own insertion looks through all keys,
    // which here differ.
    for (const Json::Member& member : members) {
      all.Container::emplace_back(member.key, library_value(member.value));
    }
    return object;
  }
  Library operator()(const auto& value) const { return value; }
};

namespace {

Json read(std::string_view bytes, nlohmann::detail::input_format_t format, bool unique = false) {
  JsonReader reader(unique);
  Library::sax_parse(bytes.begin(), bytes.end(), &reader, format);
  return std::move(reader.root);
}

template <class T>
T& made(auto& value) {
  if (std::holds_alternative<std::monostate>(value)) value = T();
  if (T* found = std::get_if<T>(&value)) return *found;
  throw JsonError("the value is of another kind");
}

template <class T>
const T& checked(const auto& value, const char* kind) {
  if (const T* found = std::get_if<T>(&value)) return *found;
  throw JsonError(std::string("expected ") + kind);
}

}  // namespace

Json Json::array(std::initializer_list<Json> items) {
  Json json;
  json.value_ = Array(items);
  return json;
}

Json Json::object(std::initializer_list<Member> members) {
  Json json;
  json.value_ = Object(members);
  return json;
}

Json Json::object(Object members) {
  Json json;
  json.value_ = std::move(members);
  return json;
}

Json Json::parse(std::string_view text) {
  return read(text, nlohmann::detail::input_format_t::json);
}

Json Json::parse_unique(std::string_view text) {
  return read(text, nlohmann::detail::input_format_t::json, true);
}

Json Json::from_cbor(std::string_view bytes) {
  return read(bytes, nlohmann::detail::input_format_t::cbor);
}

Json Json::parse_or_null(std::string_view text) {
  try {
    return parse(text);
  } catch (const JsonError&) {
    return {};
  }
}

std::string Json::dump(int indent) const {
  return JsonWriter::library_value(*this).dump(indent, ' ', false,
                                               Library::error_handler_t::replace);
}

std::string Json::to_cbor() const {
  std::string bytes;
  Library::to_cbor(JsonWriter::library_value(*this), bytes);
  return bytes;
}

bool Json::boolean() const {
  return checked<bool>(value_, "true or false");
}

std::int64_t Json::integer() const {
  // A number that another program wrote with an exponent may still be whole.
  constexpr double kLimit = 9007199254740992.0;  // 2^53: beyond it a double skips integers
  if (const auto* real = std::get_if<double>(&value_); real && std::abs(*real) <= kLimit) {
    const auto whole = static_cast<std::int64_t>(*real);
    if (static_cast<double>(whole) == *real) return whole;
  }
  return checked<std::int64_t>(value_, "an integer of 64 bits");
}

std::uint64_t Json::unsigned_integer() const {
  if (const auto* large = std::get_if<std::uint64_t>(&value_)) return *large;
  const std::int64_t value = integer();
  if (value < 0) throw JsonError("expected an integer of at least 0");
  return static_cast<std::uint64_t>(value);
}

int Json::small_integer() const {
  const std::int64_t value = integer();
  if (!std::in_range<int>(value)) throw JsonError("expected an integer of 32 bits");
  return static_cast<int>(value);
}

double Json::number() const {
  if (const auto* value = std::get_if<std::int64_t>(&value_)) return static_cast<double>(*value);
  if (const auto* value = std::get_if<std::uint64_t>(&value_)) return static_cast<double>(*value);
  return checked<double>(value_, "a number");
}

const std::string& Json::text() const {
  return checked<std::string>(value_, "a text");
}

const Json::Array& Json::items() const {
  return checked<Array>(value_, "an array");
}

const Json::Object& Json::members() const {
  return checked<Object>(value_, "an object");
}

const Json& Json::at(std::size_t index) const {
  const Array& all = items();
  if (index < all.size()) return all[index];
  throw JsonError("the array has too few items");
}

const Json& Json::at(std::string_view key) const {
  if (const Json* found = find(key)) return *found;
  throw JsonError("no member is called '" + std::string(key) + "'");
}

const Json* Json::find(std::string_view key) const {
  const Object* object = std::get_if<Object>(&value_);
  if (!object) return nullptr;
  for (const Member& member : *object) {
    if (member.key == key) return &member.value;
  }
  return nullptr;
}

void Json::push_back(Json item) {
  made<Array>(value_).push_back(std::move(item));
}

Json& Json::operator[](std::string_view key) {
  Object& object = made<Object>(value_);
  for (Member& member : object) {
    if (member.key == key) return member.value;
  }
  return object.emplace_back(std::string(key), Json()).value;
}

}  // namespace trireme
