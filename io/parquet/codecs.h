// How the pages of a column are compressed.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "io/parquet/byte_reader.h"

namespace trireme::parquet {

// Memory that costs nothing before it is written.
struct Buffer {
  Buffer() = default;
  explicit Buffer(std::size_t count)
      : bytes(std::make_unique_for_overwrite<char[]>(count)), size(count) {}
  std::string_view view() const { return {bytes.get(), size}; }

  std::unique_ptr<char[]> bytes;
  std::size_t size = 0;
};

constexpr std::int64_t kUncompressed = 0;

// A page of exactly `size` bytes. `codec` is the format's number: what is not read is refused by
// name. A size of more than a codec can make of `from` is damage, found before memory is taken.
Buffer decompressed(std::int64_t codec, std::string_view from, std::size_t size,
                    const Place& place);

}  // namespace trireme::parquet
