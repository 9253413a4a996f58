// Numbers as differences, packed in blocks: DELTA_BINARY_PACKED.
#pragma once

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "io/parquet/bit_runs.h"
#include "io/parquet/byte_reader.h"

namespace trireme::parquet {

class DeltaNumbers {
 public:
  // `most`: how many numbers there can be.
  DeltaNumbers(ByteReader bytes, std::uint64_t most);

  std::uint64_t count() const { return count_; }
  // The next one, of 64 bits, or, in its low half, of 32.
  std::int64_t next();
  // What follows the numbers, which takes no memory to find.
  std::string_view behind() const;

 private:
  void open_miniblock();

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
