// The values of a page, one after the other, by the encodings of the format.
#pragma once

#include <cstdint>
#include <memory>
#include <string_view>
#include <vector>

#include "io/parquet/byte_reader.h"
#include "io/parquet/codecs.h"
#include "io/parquet/schema.h"

namespace trireme::parquet {

// A value is its bytes: a number's are little-endian, a Boolean is a byte 0 or 1.
class Values {
 public:
  virtual ~Values() = default;
  // Throws DataError where there is none any more.
  virtual std::string_view next() = 0;
  // Whether values stay as long as the page and the dictionary; otherwise until the next one.
  virtual bool stay() const { return true; }
};

// The values of a dictionary page, which stay as long as it does.
struct Dictionary {
  Buffer page;
  std::vector<std::string_view> values;
};

// `encoding` is the format's number; what is not read for a column of this type is refused by name.
// `most`: the number of the page's entries. `dictionary`: null where there is none.
std::unique_ptr<Values> open_values(std::int32_t encoding, const Leaf& leaf, std::string_view bytes,
                                    std::uint64_t most, const Dictionary* dictionary,
                                    const Place& place);

// The page's values are PLAIN.
Dictionary read_dictionary(Buffer page, std::uint64_t count, const Leaf& leaf, const Place& place);

}  // namespace trireme::parquet
