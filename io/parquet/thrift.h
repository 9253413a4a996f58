// Values in thrift's compact form, of which a Parquet file's headers are made.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string_view>
#include <utility>
#include <variant>

#include "io/parquet/byte_reader.h"

namespace trireme::parquet {

// A value that is read once, where it lies, or passed over. A value of another type than the one
// that is asked for is damage, and so are structures inside of structures without end.
class ThriftValue {
 public:
  static constexpr int kStruct = 12;

  // `type` is thrift's number; what stands alone at the start of a header is a struct.
  explicit ThriftValue(ByteReader& bytes, int type = kStruct, bool element = false, int depth = 0);

  bool boolean();
  std::int64_t integer();
  std::int32_t integer32();
  std::string_view binary();
  // Calls each(id, value) for the fields of a struct.
  template <class Each>
  void fields(Each each) {
    begin(kStruct);
    std::int64_t id = 0;
    while (const unsigned header = bytes_->byte()) {
      const int step = static_cast<int>(header >> 4);
      id = step != 0 ? id + step : bytes_->zigzag();
      bytes_->place().check(id >= 0 && id < 32768, "the number of a field is out of range");
      ThriftValue value(*bytes_, static_cast<int>(header & 15), false, depth_ + 1);
      each(static_cast<int>(id), value);
      value.pass();
    }
  }
  // The same, where some fields, by their numbers, are read into variables.
  using Target = std::variant<bool*, std::int32_t*, std::int64_t*, std::string_view*>;
  template <class Each>
  void fields(std::initializer_list<std::pair<int, Target>> targets, Each each) {
    fields([&](int id, ThriftValue& value) {
      for (const auto& [number, target] : targets) {
        if (number == id) return value.read_into(target);
      }
      each(id, value);
    });
  }
  void fields(std::initializer_list<std::pair<int, Target>> targets) {
    fields(targets, [](int, ThriftValue&) {});
  }
  // Calls each(value) for the elements of a list or set, of which each has a byte or more.
  template <class Each>
  void elements(Each each) {
    begin(type_ == kSet ? kSet : kList);
    const unsigned header = bytes_->byte();
    const std::uint64_t count = header >> 4 == 15 ? bytes_->varint() : header >> 4;
    if (count > bytes_->left()) bytes_->place().ends_early();
    for (std::uint64_t i = 0; i < count; ++i) {
      ThriftValue value(*bytes_, static_cast<int>(header & 15), true, depth_ + 1);
      each(value);
      value.pass();
    }
  }
  // Passes over the value, if it has not been read.
  void pass();

 private:
  static constexpr int kTrue = 1, kFalse = 2, kByte = 3, kInteger16 = 4, kInteger64 = 6,
                       kDouble = 7, kBinary = 8, kList = 9, kSet = 10, kMap = 11;
  void begin(int type);
  void read_into(const Target& target);
  void pass_map();

  ByteReader* bytes_;
  int type_;
  bool element_;  // of a list, where a Boolean has a byte of its own
  int depth_;
  bool read_ = false;
};

}  // namespace trireme::parquet
