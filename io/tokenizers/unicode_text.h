// Unicode's normal forms and classes of characters, for texts in valid UTF-8.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace trireme {

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

bool is_white_space(char32_t character);  // Unicode's property White_Space
bool is_punctuation(char32_t character);  // categories P*, and all ASCII that is no letter, digit
bool is_nonspacing_mark(char32_t character);  // category Mn
bool is_control(char32_t character);          // categories Cc, Cf, Cs, Co
// Appends the character in lower case, which may be two characters.
void append_lower_case(char32_t character, std::string& text);

}  // namespace trireme
