#include "io/tokenizers/character_map.h"

#include <fmt/format.h>

#include "trireme/base/error.h"

#include "io/tokenizers/base64.h"
#include "io/tokenizers/unicode_text.h"

namespace trireme {
namespace {

std::uint32_t number_at(std::string_view bytes, std::size_t at) {
  std::uint32_t number = 0;
  for (std::size_t i = 0; i < 4; ++i) {
    number |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[at + i])) << 8 * i;
  }
  return number;
}

std::uint32_t offset_of(std::uint32_t unit) {
  return unit >> 10 << ((unit & 0x200u) >> 6);
}

}  // namespace

CharacterMap CharacterMap::from_base64(std::string_view base64, const std::string& origin) {
  const std::optional<std::string> bytes = trireme::from_base64(base64);
  if (bytes) return {*bytes, origin};
  throw DataError(fmt::format("{}: its precompiled_charsmap is not in base 64", origin));
}

CharacterMap::CharacterMap(std::string_view bytes, const std::string& origin) {
  const auto refuse = [&](std::string_view why) {
    throw DataError(fmt::format("{}: its precompiled_charsmap {}", origin, why));
  };
  const std::size_t size = bytes.size() < 4 ? 0 : number_at(bytes, 0);
  if (size == 0 || size % 4 != 0 || size > bytes.size() - 4) refuse("is cut short");
  for (std::size_t at = 4; at < 4 + size; at += 4) units_.push_back(number_at(bytes, at));
  texts_ = bytes.substr(4 + size);
  texts_ += '\0';
  for (std::string_view left = texts_; !left.empty();) {
    const std::size_t length = left.front() == '\0' ? 1 : utf8_length(left);
    if (length == 0) refuse("has texts that are not UTF-8");
    left.remove_prefix(length);
  }
}

template <class OnMatch>
void CharacterMap::each_match(std::string_view text, OnMatch on_match) const {
  std::uint32_t at = offset_of(units_.front());
  for (std::size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    at ^= byte;
    if (byte == 0 || at >= units_.size()) return;
    const std::uint32_t unit = units_[at];
    if ((unit & 0x800000ffu) != byte) return;
    at ^= offset_of(unit);
    if (at >= units_.size()) return;
    if ((unit >> 8 & 1) == 0) continue;
    const std::size_t begin = units_[at] & 0x7fffffffu;
    if (begin >= texts_.size() || continues_character(texts_[begin])) return;
    const auto becomes = std::string_view(texts_).substr(begin, texts_.find('\0', begin) - begin);
    if (!on_match(i + 1, becomes)) return;
  }
}

std::optional<std::string_view> CharacterMap::find(std::string_view text) const {
  std::optional<std::string_view> found;
  each_match(text, [&](std::size_t, std::string_view becomes) {
    found = becomes;
    return false;
  });
  return found;
}

CharacterMap::Match CharacterMap::longest(std::string_view text) const {
  Match match;
  each_match(text, [&](std::size_t length, std::string_view becomes) {
    match = {length, becomes};
    return true;
  });
  return match;
}

std::string CharacterMap::apply(std::string_view text) const {
  constexpr std::size_t kLongestGrapheme = 5;
  std::string made;
  made.reserve(text.size());
  while (!text.empty()) {
    const std::size_t length = grapheme_length(text);
    const std::string_view grapheme = text.substr(0, length);
    text.remove_prefix(length);
    if (length <= kLongestGrapheme) {
      if (const auto found = find(grapheme)) {
        made += *found;
        continue;
      }
    }
    for_each_character(grapheme, [&](char32_t, std::string_view character) {
      made += find(character).value_or(character);
    });
  }
  return made;
}

}  // namespace trireme
