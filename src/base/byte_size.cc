#include "trireme/base/byte_size.h"

#include <charconv>
#include <cmath>

namespace trireme {

std::optional<std::int64_t> read_size(std::string_view text, std::int64_t unit) {
  constexpr double kMost = 1152921504606846976.0;  // 2^60
  const auto at = [&](std::size_t i) {
    const char c = i < text.size() ? text[i] : '\0';
    return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  };
  double number = 0.0;
  const auto [stop, fault] =
      std::from_chars(text.data(), text.data() + text.size(), number, std::chars_format::fixed);
  if (fault != std::errc() || std::signbit(number)) return {};
  text.remove_prefix(static_cast<std::size_t>(stop - text.data()));
  if (text.size() > 1 && text.front() == ' ') text.remove_prefix(1);
  auto factor = static_cast<double>(unit);
  bool whole = true;  // a part of a byte, or of what a number alone counts in, is a typing error
  if (!text.empty()) {
    constexpr std::string_view kPrefixes = "kmgtp";
    const std::size_t prefix = kPrefixes.find(at(0));
    if (prefix != std::string_view::npos) {
      factor = std::ldexp(1.0, 10 * (static_cast<int>(prefix) + 1));
      whole = false;
      text.remove_prefix(1);
      if (at(0) == 'i' && at(1) == 'b') text.remove_prefix(1);
    } else {
      factor = 1.0;
    }
    if (at(0) == 'b') text.remove_prefix(1);
    if (!text.empty()) return {};
  }
  const double bytes = number * factor;
  if (!(bytes <= kMost) || (whole && number != std::floor(number))) return {};
  return static_cast<std::int64_t>(bytes);
}

std::string read_size_in(std::string_view text, std::int64_t unit, std::int64_t& count,
                         const Limit& limit) {
  const auto bytes = read_size(text, unit);
  if (!bytes) return "is not a size, as in 1500M, 64G or 80GiB";
  std::int64_t units = 0;
  const std::string problem = read_value(std::to_string(*bytes / unit), units, limit);
  if (problem.empty()) count = units;
  return problem;
}

}  // namespace trireme
