#include "io/tokenizers/unicode_text.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include <fmt/format.h>
#include <utf8proc.h>

#include "trireme/base/error.h"
#include "trireme/base/utf8.h"

namespace trireme {
namespace {

utf8proc_option_t options_of(NormalForm form) {
  int options = UTF8PROC_STABLE;
  const bool composes = form == NormalForm::kNfc || form == NormalForm::kNfkc;
  options |= composes ? UTF8PROC_COMPOSE : UTF8PROC_DECOMPOSE;
  if (form == NormalForm::kNfkc || form == NormalForm::kNfkd) options |= UTF8PROC_COMPAT;
  return static_cast<utf8proc_option_t>(options);
}

utf8proc_category_t category_of(char32_t character) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(character));
}

}  // namespace

std::string normalised(std::string_view text, NormalForm form) {
  if (is_ascii(text)) return std::string(text);
  utf8proc_uint8_t* made = nullptr;
  const utf8proc_ssize_t size =
      utf8proc_map(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(text.size()), &made, options_of(form));
  const std::unique_ptr<utf8proc_uint8_t, decltype(&std::free)> owner(made, &std::free);
  if (size < 0) {
    throw DataError(fmt::format("a text cannot be normalised: {}", utf8proc_errmsg(size)));
  }
  return {reinterpret_cast<const char*>(made), static_cast<std::size_t>(size)};
}

bool is_ascii(std::string_view text) {
  return std::all_of(text.begin(), text.end(), [](char c) { return (c & 0x80) == 0; });
}

char32_t first_character(std::string_view text) {
  utf8proc_int32_t character = 0;
  utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()),
                   static_cast<utf8proc_ssize_t>(utf8_length(text)), &character);
  return static_cast<char32_t>(character);
}

void append_utf8(char32_t character, std::string& text) {
  utf8proc_uint8_t bytes[4];
  const auto size = utf8proc_encode_char(static_cast<utf8proc_int32_t>(character), bytes);
  text.append(reinterpret_cast<const char*>(bytes), static_cast<std::size_t>(size));
}

bool is_white_space(char32_t character) {
  if (character < 0x80) return character == ' ' || (character >= '\t' && character <= '\r');
  const auto category = category_of(character);
  return character == 0x85 || category == UTF8PROC_CATEGORY_ZS ||
         category == UTF8PROC_CATEGORY_ZL || category == UTF8PROC_CATEGORY_ZP;
}

bool is_punctuation(char32_t character) {
  if (character < 0x80) {
    const bool is_letter = (character | 0x20) >= 'a' && (character | 0x20) <= 'z';
    const bool is_digit = character >= '0' && character <= '9';
    return character > ' ' && character < 0x7f && !is_letter && !is_digit;
  }
  const auto category = category_of(character);
  return category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO;
}

std::size_t last_character_begin(std::string_view text) {
  std::size_t at = text.size() - 1;
  while (at > 0 && continues_character(text[at])) --at;
  return at;
}

std::size_t grapheme_length(std::string_view text) {
  std::size_t length = utf8_length(text);
  char32_t last = first_character(text);
  utf8proc_int32_t state = 0;
  while (length < text.size()) {
    const char32_t next = first_character(text.substr(length));
    if (utf8proc_grapheme_break_stateful(static_cast<utf8proc_int32_t>(last),
                                         static_cast<utf8proc_int32_t>(next), &state) != 0) {
      break;
    }
    length += utf8_length(text.substr(length));
    last = next;
  }
  return length;
}

bool are_two_graphemes(char32_t left, char32_t right) {
  return utf8proc_grapheme_break(static_cast<utf8proc_int32_t>(left),
                                 static_cast<utf8proc_int32_t>(right)) != 0;
}

bool is_numeric(char32_t character) {
  if (character < 0x80) return character >= '0' && character <= '9';
  const auto category = category_of(character);
  return category >= UTF8PROC_CATEGORY_ND && category <= UTF8PROC_CATEGORY_NO;
}

bool is_letter(char32_t character) {
  const auto category = category_of(character);
  return category >= UTF8PROC_CATEGORY_LU && category <= UTF8PROC_CATEGORY_LO;
}

bool is_mark(char32_t character) {
  const auto category = category_of(character);
  return category >= UTF8PROC_CATEGORY_MN && category <= UTF8PROC_CATEGORY_ME;
}

// Alphabetic characters, marks, decimal digits, connectors and joiners.
bool is_word_character(char32_t c) {
  if (is_letter(c) || is_mark(c) || c == 0x200c || c == 0x200d) return true;
  const auto category = category_of(c);
  return category == UTF8PROC_CATEGORY_ND || category == UTF8PROC_CATEGORY_NL ||
         category == UTF8PROC_CATEGORY_PC || (c >= 0x24b6 && c <= 0x24e9) ||
         (c >= 0x1f130 && c <= 0x1f149) || (c >= 0x1f150 && c <= 0x1f169) ||
         (c >= 0x1f170 && c <= 0x1f189);
}

bool is_nonspacing_mark(char32_t character) {
  return category_of(character) == UTF8PROC_CATEGORY_MN;
}

bool is_control(char32_t character) {
  const auto category = category_of(character);
  return category >= UTF8PROC_CATEGORY_CC && category <= UTF8PROC_CATEGORY_CO;
}

void append_lower_case(char32_t character, std::string& text) {
  // The one character whose lower case is always two: i with a dot above.
  if (character == 0x130) {
    text += "i\xcc\x87";
    return;
  }
  const auto lower = utf8proc_tolower(static_cast<utf8proc_int32_t>(character));
  append_utf8(static_cast<char32_t>(lower), text);
}

std::string in_lower_case(std::string_view text) {
  std::string made;
  made.reserve(text.size());
  for_each_character(text, [&](char32_t c, std::string_view) {
    if (c < 0x80) {
      made += static_cast<char>(c >= 'A' && c <= 'Z' ? c + ('a' - 'A') : c);
    } else {
      append_lower_case(c, made);
    }
  });
  return made;
}

}  // namespace trireme
