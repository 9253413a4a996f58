#include "cli/text.h"

#include <algorithm>
#include <array>
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

std::string size_text(std::uint64_t bytes) {
  constexpr std::array<std::string_view, 5> kUnits = {"B", "kB", "MB", "GB", "TB"};
  double value = static_cast<double>(bytes);
  std::size_t unit = 0;
  while (value >= 999.95 && unit + 1 < kUnits.size()) {
    value /= 1000;
    ++unit;
  }
  return unit == 0 ? fmt::format("{} B", bytes) : fmt::format("{:.1f} {}", value, kUnits[unit]);
}

std::string duration_text(double seconds) {
  constexpr double kMost = 1e15;  // of what a file may say
  const auto whole = static_cast<std::int64_t>(std::clamp(seconds, 0.0, kMost));
  if (whole >= 86400) return fmt::format("{} d {:02} h", whole / 86400, whole / 3600 % 24);
  if (whole >= 3600) return fmt::format("{} h {:02} min", whole / 3600, whole / 60 % 60);
  if (whole >= 60) return fmt::format("{} min {:02} s", whole / 60, whole % 60);
  return fmt::format("{} s", whole);
}

}  // namespace trireme::cli
