#include "io/parquet/thrift.h"

#include <limits>

namespace trireme::parquet {
namespace {

constexpr int kDeepest = 64;

}  // namespace

ThriftValue::ThriftValue(ByteReader& bytes, int type, bool element, int depth)
    : bytes_(&bytes), type_(type), element_(element), depth_(depth) {
  bytes.place().check(depth <= kDeepest, "structures inside of structures without end");
}

void ThriftValue::begin(int type) {
  bytes_->place().check(type_ == type && !read_, "a field has the wrong type");
  read_ = true;
}

bool ThriftValue::boolean() {
  begin(type_ == kFalse ? kFalse : kTrue);
  return element_ ? bytes_->byte() == kTrue : type_ == kTrue;
}

std::int64_t ThriftValue::integer() {
  begin(type_ > kByte && type_ < kInteger64 ? type_ : kInteger64);
  return bytes_->zigzag();
}

std::int32_t ThriftValue::integer32() {
  const std::int64_t value = integer();
  bytes_->place().check(value == static_cast<std::int32_t>(value), "a number is out of range");
  return static_cast<std::int32_t>(value);
}

std::string_view ThriftValue::binary() {
  begin(kBinary);
  return bytes_->take(bytes_->varint());
}

void ThriftValue::read_into(const Target& target) {
  if (auto* const truth = std::get_if<bool*>(&target)) **truth = boolean();
  if (auto* const narrow = std::get_if<std::int32_t*>(&target)) **narrow = integer32();
  if (auto* const wide = std::get_if<std::int64_t*>(&target)) **wide = integer();
  if (auto* const bytes = std::get_if<std::string_view*>(&target)) **bytes = binary();
}

void ThriftValue::pass_map() {
  begin(kMap);
  const std::uint64_t count = bytes_->varint();
  if (count > bytes_->left()) bytes_->place().ends_early();
  const unsigned types = count == 0 ? 0 : bytes_->byte();
  for (std::uint64_t i = 0; i < count; ++i) {
    ThriftValue(*bytes_, static_cast<int>(types >> 4), true, depth_ + 1).pass();
    ThriftValue(*bytes_, static_cast<int>(types & 15), true, depth_ + 1).pass();
  }
}

void ThriftValue::pass() {
  if (read_) return;
  switch (type_) {
    case kTrue:
    case kFalse:
      boolean();
      break;
    case kByte:
      bytes_->take(1);
      break;
    case kDouble:
      bytes_->take(8);
      break;
    case kBinary:
      binary();
      break;
    case kList:
    case kSet:
      elements([](ThriftValue&) {});
      break;
    case kMap:
      pass_map();
      break;
    case kStruct:
      fields([](int, ThriftValue&) {});
      break;
    default:
      integer();
  }
}

}  // namespace trireme::parquet
