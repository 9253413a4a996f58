#include "cli/text.h"

#include <charconv>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"

namespace trireme::cli {

std::string unescaped(std::string_view text, std::string_view flag) {
  std::string result;
  for (std::size_t at = 0; at < text.size(); ++at) {
    if (text[at] != '\\') {
      result += text[at];
      continue;
    }
    const std::string_view escape =
        text.substr(at, at + 1 < text.size() && text[at + 1] == 'x' ? 4 : 2);
    at += escape.size() - 1;
    if (escape == "\\n") {
      result += '\n';
    } else if (escape == "\\t") {
      result += '\t';
    } else if (escape == "\\0") {
      result += '\0';
    } else if (escape == "\\\\") {
      result += '\\';
    } else {
      unsigned char byte = 0;
      const char* end = escape.data() + escape.size();
      if (escape.size() != 4 || std::from_chars(escape.data() + 2, end, byte, 16).ptr != end) {
        throw ConfigError(
            fmt::format("{} {}: '{}' stands for nothing; \\n, \\t, \\0, \\\\ and \\xNN do", flag,
                        shown(text), escape));
      }
      result += static_cast<char>(byte);
    }
  }
  return result;
}

void NamedLines::add(std::string_view name, std::string_view value) {
  text_ += fmt::format("{}{:<{}}{}", text_.empty() ? "" : "\n", name, width_, value);
}

}  // namespace trireme::cli
