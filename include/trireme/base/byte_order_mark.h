// The mark that some editors put before a UTF-8 text. It is no part of the text, and invisible.
#pragma once

#include <string_view>

namespace trireme {

inline std::string_view without_byte_order_mark(std::string_view text) {
  constexpr std::string_view kMark = "\xef\xbb\xbf";
  return text.starts_with(kMark) ? text.substr(kMark.size()) : text;
}

}  // namespace trireme
