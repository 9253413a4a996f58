// Amounts of memory and of data as people type them.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/options.h"

namespace trireme {

// Reads "1500", "64K", "1.5M", "80G", "80GB", "80GiB", "80 GiB", "1T" in either case: units of
// 1024, with or without B or iB. A number without one counts in `unit` bytes. Returns bytes,
// rounded down; nothing for a text that is no size, and for more than 2^60.
std::optional<std::int64_t> read_size(std::string_view text, std::int64_t unit = 1);

// A size as the value of an option. `kUnit`: the bytes of what it counts in, also without a unit.
template <std::int64_t kUnit>
struct SizeIn {
  std::int64_t count = 0;
};
using ByteSize = SizeIn<1>;
using MebibyteSize = SizeIn<std::int64_t{1} << 20>;

// Reads a size and returns what is wrong, as read_value of options.h does. `limit` is in units.
std::string read_size_in(std::string_view text, std::int64_t unit, std::int64_t& count,
                         const Limit& limit);

template <std::int64_t kUnit>
std::string read_value(std::string_view text, SizeIn<kUnit>& value, const Limit& limit) {
  return read_size_in(text, kUnit, value.count, limit);
}
template <std::int64_t kUnit>
std::string write_value(SizeIn<kUnit> value) {
  return write_value(value.count);
}
template <std::int64_t kUnit>
std::string value_placeholder(SizeIn<kUnit>) {
  return "SIZE";
}

}  // namespace trireme
