// Numbers between commas.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "trireme/base/options.h"

namespace trireme {

// Returns the numbers of a text like "1,0.5"; nothing where one is none, or beyond the limit.
template <class Number>
std::optional<std::vector<Number>> numbers_in(std::string_view text, const Limit& limit) {
  std::vector<Number> numbers;
  for (;;) {
    const std::size_t comma = text.find(',');
    if (!read_value(text.substr(0, comma), numbers.emplace_back(), limit).empty()) return {};
    if (comma == std::string_view::npos) return numbers;
    text.remove_prefix(comma + 1);
  }
}

}  // namespace trireme
