#include "io/tokenizers/decoder.h"

#include <algorithm>
#include <array>
#include <charconv>

#include <fmt/format.h>

#include "trireme/base/utf8.h"

#include "io/tokenizers/unicode_text.h"

namespace trireme {
namespace {

// Files spell each byte as a character that can be seen: itself where Latin 1 has such a one, and
// the others in turn from U+0100 on.
class VisibleBytes {
 public:
  VisibleBytes() {
    bytes_.fill(-1);
    char32_t other = 0x100;
    for (int byte = 0; byte < 256; ++byte) {
      const bool is_visible = (byte >= 0x21 && byte <= 0x7e) || (byte >= 0xa1 && byte != 0xad);
      characters_[static_cast<std::size_t>(byte)] =
          is_visible ? static_cast<char32_t>(byte) : other++;
      bytes_[characters_[static_cast<std::size_t>(byte)]] = byte;
    }
  }

  char32_t character_of(char byte) const { return characters_[static_cast<unsigned char>(byte)]; }
  int byte_of(char32_t character) const {
    return character < bytes_.size() ? bytes_[character] : -1;
  }

 private:
  std::array<int, 0x144> bytes_{};
  std::array<char32_t, 256> characters_{};
};

const VisibleBytes& visible_bytes_of_files() {
  static const VisibleBytes visible;
  return visible;
}

std::string replaced_literal(std::string_view text, std::string_view from, std::string_view to) {
  std::string made;
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t found = std::min(text.find(from, at), text.size());
    made += text.substr(at, found - at);
    if (found == text.size()) break;
    made += to;
    at = found + from.size();
  }
  return made;
}

}  // namespace

std::string Decoder::bytes_of(std::string_view token) const {
  std::string bytes(token);
  for (const Step& step : steps_) {
    if (const auto* replace = std::get_if<Replace>(&step)) {
      bytes = replaced_literal(bytes, replace->pattern, replace->content);
    } else if (std::holds_alternative<ByteFallback>(step)) {
      const int byte = named_byte(bytes);
      if (byte >= 0) return std::string(1, static_cast<char>(byte));
    } else {
      std::string read;
      if (read_visible_bytes(bytes, read)) bytes = std::move(read);
    }
  }
  return bytes;
}

std::string name_of_byte(char byte) {
  return fmt::format("<0x{:02X}>", static_cast<unsigned char>(byte));
}

int named_byte(std::string_view token) {
  int byte = -1;
  if (token.size() != 6 || !token.starts_with("<0x") || token[5] != '>') return -1;
  const char* end = token.data() + 5;
  const auto result = std::from_chars(token.data() + 3, end, byte, 16);
  return result.ec == std::errc() && result.ptr == end ? byte : -1;
}

bool read_visible_bytes(std::string_view token, std::string& bytes) {
  const VisibleBytes& visible = visible_bytes_of_files();
  bytes.clear();
  while (!token.empty()) {
    const std::size_t length = utf8_length(token);
    const int byte = length == 0 ? -1 : visible.byte_of(first_character(token));
    if (byte < 0) return false;
    bytes += static_cast<char>(byte);
    token.remove_prefix(length);
  }
  return true;
}

std::string visible_bytes(std::string_view bytes) {
  std::string made;
  for (const char byte : bytes) append_utf8(visible_bytes_of_files().character_of(byte), made);
  return made;
}

}  // namespace trireme
