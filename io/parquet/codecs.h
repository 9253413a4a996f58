// How the pages of a column are compressed.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

#include "io/parquet/place.h"

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

class Decompressor {
 public:
  // `codec` is the format's number. Refuses by name what is not read.
  Decompressor(std::int32_t codec, const Place& place);
  ~Decompressor();
  Decompressor(const Decompressor&) = delete;
  Decompressor& operator=(const Decompressor&) = delete;

  // A page of exactly `size` bytes; of more than its codec can make of `from` is damage that is
  // found before memory is taken.
  Buffer page(std::string_view from, std::size_t size, const Place& place);
  // The same, without a copy of what is not compressed.
  Buffer page(Buffer from, std::size_t size, const Place& place);

 private:
  std::int32_t codec_;
  struct Contexts;
  std::unique_ptr<Contexts> contexts_;
};

}  // namespace trireme::parquet
