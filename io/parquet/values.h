// The values of a page, one after the other, by the encodings of the format.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "io/parquet/byte_reader.h"
#include "io/parquet/codecs.h"
#include "io/parquet/schema.h"

namespace trireme::parquet {

// A value is its bytes: a number's are little-endian, a Boolean is a byte 0 or 1.
struct Values {
  // Throws DataError where there is none any more.
  std::function<std::string_view()> next;
  // Whether values stay as long as the page and the dictionary; otherwise until the next one.
  bool stay = true;
};

// The values of a dictionary page, which stay as long as it does.
struct Dictionary {
  Buffer page;
  std::vector<std::string_view> values;
};

// What a page has of values, and what they are read with, which outlives them.
struct EncodedValues {
  const Leaf& leaf;
  ByteReader bytes;
  std::uint64_t most;            // the number of the page's entries
  const Dictionary* dictionary;  // null: there is none
};

// `encoding` is the format's number; what is not read for a column of this type is refused by name.
Values open_values(std::int64_t encoding, const EncodedValues& from);

// The page's values are PLAIN.
Dictionary read_dictionary(Buffer page, std::uint64_t count, const Leaf& leaf, const Place& place);

}  // namespace trireme::parquet
