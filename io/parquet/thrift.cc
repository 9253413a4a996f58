#include "io/parquet/thrift.h"

#include <algorithm>

namespace trireme::parquet {
namespace {

constexpr int kDeepest = 64;

// Thrift's types by their numbers.
constexpr unsigned kTrue = 1, kFalse = 2, kByte = 3, kInt16 = 4, kInt32 = 5, kInt64 = 6,
                   kDouble = 7, kBinary = 8, kList = 9, kSet = 10, kMap = 11, kStruct = 12;

class ThriftReader {
 public:
  explicit ThriftReader(ByteReader& bytes) : bytes_(bytes) {}

  // Reads a struct, and gives the number of its last field: the only one that a union has.
  std::int64_t read_struct(const ThriftFields& wanted) {
    std::int64_t id = 0;
    while (const unsigned header = bytes_.byte()) {
      const unsigned step = header >> 4;
      id = step != 0 ? id + step : bytes_.zigzag();
      bytes_.place().check(id >= 0 && id < 32768, "the number of a field is out of range");
      const auto field = std::ranges::find(wanted, id, &ThriftField::id);
      read_value(header & 15, field == wanted.end() ? nullptr : &*field);
    }
    return id;
  }

 private:
  // A Boolean has a byte of its own where it is the element of a list or a map.
  void read_value(unsigned type, const ThriftField* field, bool is_element = false) {
    bytes_.place().check(++depth_ <= kDeepest, "structures inside of structures without end");
    switch (type) {
      case kTrue:
      case kFalse:
        store<bool>(field, (is_element ? bytes_.byte() : type) == kTrue);
        break;
      case kInt16:
      case kInt32:
      case kInt64:
        store<std::int64_t>(field, bytes_.zigzag());
        break;
      case kBinary:
        store<std::string>(field, bytes_.take(bytes_.varint()));
        break;
      case kList:
      case kSet:
        read_list(target<ThriftElement>(field));
        break;
      case kStruct:
        read_inner_struct(field);
        break;
      default:
        bytes_.place().check(field == nullptr, "a field has the wrong type");
        pass_other(type);
    }
    --depth_;
  }

  // Where a value goes, which is of the type that T takes; null: it is passed over.
  template <class T>
  const T* target(const ThriftField* field) const {
    if (field == nullptr) return nullptr;
    const T* const found = std::get_if<T>(&field->to);
    bytes_.place().check(found != nullptr, "a field has the wrong type");
    return found;
  }

  template <class T, class Value>
  void store(const ThriftField* field, Value value) const {
    if (const auto* to = target<T*>(field)) **to = value;
  }

  void read_inner_struct(const ThriftField* field) {
    if (field == nullptr) {
      read_struct({});
    } else if (const auto* to = std::get_if<ThriftUnion>(&field->to)) {
      *to->member = read_struct({});
    } else {
      read_struct(*target<ThriftFields>(field));
    }
  }

  void read_list(const ThriftElement* wanted) {
    const unsigned header = bytes_.byte();
    const std::uint64_t count = header >> 4 == 15 ? bytes_.varint() : header >> 4;
    if (count > bytes_.left()) bytes_.place().ends_early();  // each has a byte or more
    for (std::uint64_t i = 0; i < count; ++i) {
      const ThriftField element = {0, wanted == nullptr ? ThriftFields() : (*wanted)()};
      read_value(header & 15, wanted == nullptr ? nullptr : &element, true);
    }
  }

  // Passes over what no header of Parquet has.
  void pass_other(unsigned type) {
    bytes_.place().check(type == kByte || type == kDouble || type == kMap, "a field of no type");
    if (type == kByte) bytes_.take(1);
    if (type == kDouble) bytes_.take(8);
    const std::uint64_t count = type == kMap ? bytes_.varint() : 0;
    if (count > bytes_.left()) bytes_.place().ends_early();
    const unsigned types = count == 0 ? 0 : bytes_.byte();
    for (std::uint64_t i = 0; i < count; ++i) {
      read_value(types >> 4, nullptr, true);
      read_value(types & 15, nullptr, true);
    }
  }

  ByteReader& bytes_;
  int depth_ = 0;
};

}  // namespace

void read_thrift(ByteReader& bytes, const ThriftFields& fields) {
  ThriftReader(bytes).read_struct(fields);
}

}  // namespace trireme::parquet
