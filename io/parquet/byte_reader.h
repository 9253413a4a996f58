// Bytes of a Parquet file, taken from one end to the other, and the errors that say where they are.
#pragma once

#include <cstdint>
#include <cstring>
#include <string>
#include <string_view>

#include "trireme/base/error.h"

namespace trireme::parquet {

// What is read ends before it is whole.
class EndsEarly : public DataError {
 public:
  using DataError::DataError;
};

// Where in the file something is read.
struct Place {
  std::string file;
  std::string column;           // empty: the footer
  std::int64_t row_group = -1;  // from 0
  std::int64_t page = -1;       // offset in the file

  // "FILE: damaged: column C, row group N, page at byte B: WHAT".
  [[noreturn]] void damaged(std::string_view what) const;
  [[noreturn]] void ends_early() const;
  // "FILE: column C WHAT": nothing is wrong with the file, but this is not read.
  [[noreturn]] void refuse(std::string_view what) const;
  void check(bool sound, std::string_view what) const {
    if (!sound) [[unlikely]]
      damaged(what);
  }

 private:
  std::string text(std::string_view what) const;
};

// All throw EndsEarly where the bytes do not suffice. Numbers are little-endian.
class ByteReader {
 public:
  ByteReader(std::string_view bytes, const Place& place) : bytes_(bytes), place_(&place) {}

  std::size_t left() const { return bytes_.size(); }
  std::string_view rest() const { return bytes_; }
  const Place& place() const { return *place_; }

  std::string_view take(std::uint64_t count) {
    if (count > bytes_.size()) [[unlikely]]
      place_->ends_early();
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }
  std::uint8_t byte() { return static_cast<std::uint8_t>(take(1)[0]); }
  std::uint32_t word() {
    std::uint32_t value = 0;
    std::memcpy(&value, take(sizeof(value)).data(), sizeof(value));
    return value;
  }
  // Seven bits a byte, the lowest first.
  std::uint64_t varint() {
    std::uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      const std::uint64_t next = byte();
      value |= (next & 0x7f) << shift;
      if (next < 0x80) return value;
    }
    place_->damaged("a number of more than 64 bits");
  }
  // Its sign is the lowest bit.
  std::int64_t zigzag() {
    const std::uint64_t value = varint();
    return static_cast<std::int64_t>((value >> 1) ^ (~(value & 1) + 1));
  }

 private:
  std::string_view bytes_;
  const Place* place_;
};

}  // namespace trireme::parquet
