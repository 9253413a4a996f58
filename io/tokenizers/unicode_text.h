// Unicode's normal forms and classes of characters, for texts in valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/utf8.h"

namespace trireme {

constexpr std::string_view kSpaceMark =
    "\xe2\x96\x81";  // U+2581, what spaces become in many models
constexpr std::string_view kReplacement = "\xef\xbf\xbd";  // U+FFFD

enum class NormalForm { kNfc, kNfd, kNfkc, kNfkd };

// Brings a text into a normal form. What precedes an ASCII character does not depend on it or on
// what follows it, so a text may be normalised in parts that begin with an ASCII character. That
// character itself may change: a mark that follows may become one with it. Throws DataError for a
// text that the library refuses.
std::string normalised(std::string_view text, NormalForm form);

bool is_ascii(std::string_view text);

// The character that `text` begins with; its length in bytes is utf8_length.
char32_t first_character(std::string_view text);
void append_utf8(char32_t character, std::string& text);

// Calls `on_character(character, bytes)` for each character of a text.
template <class OnCharacter>
void for_each_character(std::string_view text, OnCharacter on_character) {
  while (!text.empty()) {
    const bool is_ascii = (text.front() & 0x80) == 0;
    const std::size_t length = is_ascii ? 1 : utf8_length(text);
    const auto character = is_ascii ? static_cast<char32_t>(text.front()) : first_character(text);
    on_character(character, text.substr(0, length));
    text.remove_prefix(length);
  }
}

// Where the last character of `text`, which is not empty, begins.
std::size_t last_character_begin(std::string_view text);
// The length in bytes of what a reader takes for the first character (an extended grapheme
// cluster).
std::size_t grapheme_length(std::string_view text);
// Whether a reader takes the two for two characters.
bool are_two_graphemes(char32_t left, char32_t right);

bool is_white_space(char32_t character);     // Unicode's property White_Space
bool is_numeric(char32_t character);         // categories N*
bool is_letter(char32_t character);          // categories L*
bool is_mark(char32_t character);            // categories M*
bool is_word_character(char32_t character);  // \w of Rust's regular expressions
bool is_punctuation(char32_t character);  // categories P*, and all ASCII that is no letter, digit
bool is_nonspacing_mark(char32_t character);  // category Mn
bool is_control(char32_t character);          // categories Cc, Cf, Cs, Co
// Appends the character in lower case, which may be two characters.
void append_lower_case(char32_t character, std::string& text);
std::string in_lower_case(std::string_view text);

}  // namespace trireme
