// Numbers that are packed in bits: levels, indices into a dictionary, Booleans, differences.
#pragma once

#include <algorithm>
#include <cstdint>
#include <cstring>
#include <string_view>

#include "io/parquet/byte_reader.h"

namespace trireme::parquet {

// Number `index` of those that are packed in `width` bits each, the lowest bits first. The bytes
// hold it.
inline std::uint64_t packed_number(std::string_view bytes, std::uint64_t index, unsigned width) {
  if (width == 0) return 0;
  const std::uint64_t bit = index * width;
  const std::string_view from = bytes.substr(bit / 8);
  const unsigned shift = bit % 8;
  std::uint64_t window[2] = {0, 0};
  if (from.size() >= sizeof(window)) {
    std::memcpy(window, from.data(), sizeof(window));
  } else {
    std::memcpy(window, from.data(), from.size());
  }
  std::uint64_t value = window[0] >> shift;
  if (shift + width > 64) value |= window[1] << (64 - shift);
  return width == 64 ? value : value & ((std::uint64_t{1} << width) - 1);
}

// The format's hybrid of runs of one number and of packed numbers. It holds no more than its place.
class BitRuns {
 public:
  // width <= 32. Of width 0 there are zeros without end.
  BitRuns(std::string_view bytes, unsigned width, const Place& place)
      : bytes_(bytes, place), width_(width) {}

  std::uint32_t next() {
    if (width_ == 0) return 0;
    while (index_ == count_) open_run();
    return is_packed_ ? static_cast<std::uint32_t>(packed_number(packed_, index_++, width_))
                      : (++index_, repeated_);
  }

 private:
  void open_run() {
    const std::uint64_t header = bytes_.varint();
    is_packed_ = (header & 1) != 0;
    index_ = 0;
    count_ = header >> 1;
    if (!is_packed_) {
      const std::string_view value = bytes_.take((width_ + 7) / 8);
      repeated_ = static_cast<std::uint32_t>(packed_number(value, 0, 8 * ((width_ + 7) / 8)));
      return;
    }
    // Groups of eight; some writers leave out the end of the last one.
    const std::uint64_t groups = std::min<std::uint64_t>(count_, bytes_.left());
    packed_ = bytes_.take(std::min<std::uint64_t>(groups * width_, bytes_.left()));
    count_ = std::min<std::uint64_t>(groups * 8, packed_.size() * 8 / width_);
  }

  ByteReader bytes_;
  unsigned width_;
  bool is_packed_ = false;
  std::uint32_t repeated_ = 0;
  std::string_view packed_;
  std::uint64_t index_ = 0, count_ = 0;  // in the run
};

// Numbers as differences, packed in blocks: DELTA_BINARY_PACKED.
class DeltaNumbers {
 public:
  // `most`: how many numbers there can be.
  DeltaNumbers(ByteReader bytes, std::uint64_t most) : bytes_(bytes) {
    const std::uint64_t block = bytes_.varint();
    miniblocks_ = bytes_.varint();
    count_ = bytes_.varint();
    value_ = static_cast<std::uint64_t>(bytes_.zigzag());
    per_miniblock_ = miniblocks_ > 0 ? block / miniblocks_ : 0;
    bytes_.place().check(per_miniblock_ > 0 && per_miniblock_ % 32 == 0 &&
                             block % miniblocks_ == 0 && block < (std::uint64_t{1} << 31),
                         "blocks of differences of an impossible size");
    bytes_.place().check(count_ <= most, "more differences than values");
  }

  // The next one, of 64 bits, or, in its low half, of 32.
  std::int64_t next() {
    if (given_ == count_) bytes_.place().ends_early();
    const auto value = static_cast<std::int64_t>(value_);
    if (++given_ == count_) return value;
    if (given_ == 1 || index_ == per_miniblock_) open_miniblock();
    value_ += least_ + packed_number(packed_, index_++, width_);
    return value;
  }

  // What follows the numbers, which takes no memory to find.
  ByteReader behind() const {
    DeltaNumbers rest = *this;
    for (std::uint64_t passed = 1; passed < count_; passed += per_miniblock_) rest.open_miniblock();
    return rest.bytes_;
  }

 private:
  void open_miniblock() {
    if (widths_.empty()) {
      least_ = static_cast<std::uint64_t>(bytes_.zigzag());
      widths_ = bytes_.take(miniblocks_);
    }
    width_ = static_cast<unsigned char>(widths_.front());
    widths_.remove_prefix(1);
    bytes_.place().check(width_ <= 64, "differences of more than 64 bits");
    packed_ = bytes_.take(per_miniblock_ / 8 * width_);
    index_ = 0;
  }

  ByteReader bytes_;
  std::uint64_t miniblocks_ = 0, per_miniblock_ = 0, count_ = 0;
  std::uint64_t given_ = 0;
  std::uint64_t value_ = 0;  // the next one
  std::uint64_t least_ = 0;  // difference of the block
  std::string_view widths_;  // of the block's miniblocks to come
  std::string_view packed_;
  unsigned width_ = 0;
  std::uint64_t index_ = 0;  // in the miniblock
};

}  // namespace trireme::parquet
