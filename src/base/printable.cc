#include "trireme/base/printable.h"

#include <algorithm>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/utf8.h"

namespace trireme {
namespace {

// Whether it is one of U+0000 to U+001F, U+007F, and U+0080 to U+009F, which some terminals obey
// too, or one of those that end a line or turn the direction of what follows: U+2028 to U+202E,
// U+2066 to U+2069.
bool is_control(std::string_view character) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(character[i]); };
  if (character.size() == 1) return byte(0) < 0x20 || byte(0) == 0x7f;
  if (byte(0) == 0xc2) return byte(1) < 0xa0;
  if (byte(0) != 0xe2) return false;
  if (byte(1) == 0x80) return 0xa8 <= byte(2) && byte(2) <= 0xae;
  return byte(1) == 0x81 && 0xa6 <= byte(2) && byte(2) <= 0xa9;
}

std::string escaped(std::string_view bytes) {
  if (bytes == "\n") return "\\n";
  if (bytes == "\t") return "\\t";
  if (bytes == "\r") return "\\r";
  std::string text;
  for (const char byte : bytes) text += fmt::format("\\x{:02x}", static_cast<unsigned char>(byte));
  return text;
}

// Calls `take` with each character of the text, escaped if necessary.
template <class Take>
void each_character(std::string_view text, const Take& take) {
  while (!text.empty()) {
    const std::size_t length = utf8_length(text);
    const std::string_view character = text.substr(0, std::max<std::size_t>(length, 1));
    if (length == 0 || is_control(character)) {
      take(std::string_view(escaped(character)));
    } else {
      take(character);
    }
    text.remove_prefix(character.size());
  }
}

// Returns the number of characters in UTF-8 text.
std::size_t characters(std::string_view text) {
  return static_cast<std::size_t>(std::count_if(
      text.begin(), text.end(), [](char byte) { return !continues_character(byte); }));
}

}  // namespace

std::string printable(std::string_view text) {
  std::string result;
  result.reserve(text.size());
  each_character(text, [&](std::string_view character) { result += character; });
  return result;
}

std::string shown(std::string_view text, std::size_t most) {
  constexpr std::string_view kGap = " ... ";
  // A value may be megabytes long, so this looks at no more of it than can be shown.
  constexpr std::size_t kLongestCharacter = 4;  // bytes of UTF-8
  const std::size_t enough = kLongestCharacter * (most + 1);
  const bool huge = text.size() > 2 * enough;
  if (!huge) {
    std::string whole = printable(text);
    if (characters(whole) <= most) return whole;
  }
  // An escape is never cut. It is one character here, but its width counts.
  const std::size_t room = most - kGap.size();
  const std::size_t end_room = room / 3, begin_room = room - end_room;
  std::vector<std::string> last;
  std::string begin;
  std::size_t used = 0;
  each_character(huge ? text.substr(0, enough) : text, [&](std::string_view character) {
    used += characters(character);
    if (used <= begin_room) begin += character;
  });
  std::string_view tail = huge ? text.substr(text.size() - enough) : text;
  while (huge && !tail.empty() && continues_character(tail[0])) {
    tail.remove_prefix(1);  // the rest of a character
  }
  each_character(tail, [&](std::string_view character) { last.emplace_back(character); });
  std::string end;
  used = 0;
  for (auto at = last.rbegin(); at != last.rend(); ++at) {
    used += characters(*at);
    if (used > end_room) break;
    end.insert(0, *at);
  }
  return begin.append(kGap).append(end);
}

}  // namespace trireme
