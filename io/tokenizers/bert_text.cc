#include "io/tokenizers/bert_text.h"

#include "io/tokenizers/unicode_text.h"

namespace trireme {
namespace {

// The blocks of Chinese characters that BERT's authors list.
bool is_chinese(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b81f) ||
         (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) ||
         (c >= 0x2f800 && c <= 0x2fa1f);
}

std::string clean(std::string_view text) {
  std::string made;
  made.reserve(text.size());
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (c == '\t' || c == '\n' || c == '\r' || c == ' ') {
      made += ' ';
    } else if (c >= ' ' && c < 0x7f) {
      made += bytes;
    } else if (c != 0xfffd && !is_control(c)) {
      if (is_white_space(c)) {
        made += ' ';
      } else {
        made += bytes;
      }
    }
  });
  return made;
}

std::string with_spaced_chinese(std::string_view text) {
  std::string made;
  made.reserve(text.size());
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    if (c < 0x80 || !is_chinese(c)) {
      made += bytes;
    } else {
      made += ' ';
      made += bytes;
      made += ' ';
    }
  });
  return made;
}

std::string without_accents(std::string_view text) {
  const std::string apart = normalised(text, NormalForm::kNfd);
  std::string made;
  made.reserve(apart.size());
  for_each_character(apart, [&](char32_t c, std::string_view bytes) {
    if (c < 0x80 || !is_nonspacing_mark(c)) made += bytes;
  });
  return made;
}

}  // namespace

std::vector<std::string_view> bert_words(std::string_view text) {
  std::vector<std::string_view> words;
  std::size_t begin = 0, at = 0;
  for_each_character(text, [&](char32_t c, std::string_view bytes) {
    const bool is_mark = is_punctuation(c);
    if (is_mark || is_white_space(c)) {
      if (at > begin) words.push_back(text.substr(begin, at - begin));
      if (is_mark) words.push_back(bytes);
      begin = at + bytes.size();
    }
    at += bytes.size();
  });
  if (at > begin) words.push_back(text.substr(begin));
  return words;
}

std::string bert_text(std::string_view text, const BertText& options) {
  std::string made(text);
  if (options.cleans_text) made = clean(made);
  if (options.spaces_chinese) made = with_spaced_chinese(made);
  if (options.strips_accents) made = without_accents(made);
  if (options.lowers_case) made = in_lower_case(made);
  return made;
}

}  // namespace trireme
