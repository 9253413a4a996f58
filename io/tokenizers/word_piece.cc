#include "io/tokenizers/word_piece.h"

#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/printable.h"
#include "trireme/base/utf8.h"

namespace trireme {
namespace {

std::int64_t count_characters(std::string_view text) {
  return std::count_if(text.begin(), text.end(),
                       [](char byte) { return !continues_character(byte); });
}

// The blocks of Chinese characters that BERT's authors list.
bool is_chinese(char32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) ||
         (c >= 0x20000 && c <= 0x2a6df) || (c >= 0x2a700 && c <= 0x2b81f) ||
         (c >= 0x2b920 && c <= 0x2ceaf) || (c >= 0xf900 && c <= 0xfaff) ||
         (c >= 0x2f800 && c <= 0x2fa1f);
}

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

}  // namespace

WordPiece::WordPiece(const TokenizerFile& file, std::int32_t end_of_text, const std::string& origin)
    : tokens_(file.tokens), model_(std::get<TokenizerFile::WordPieces>(file.model)) {
  if (model_.unknown == end_of_text) {
    throw DataError(fmt::format("{}: '{}' stands for unknown words, so it cannot end texts", origin,
                                shown(tokens_[static_cast<std::size_t>(end_of_text)])));
  }
  std::vector<bool> is_only_added(tokens_.size());
  for (const TokenizerFile::AddedToken& token : file.added) {
    is_only_added[static_cast<std::size_t>(token.token)] = token.is_only_added;
  }
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    if (is_only_added[i] || std::cmp_equal(i, end_of_text)) continue;
    std::string_view text = tokens_[i];
    begins_.emplace(text, static_cast<std::int32_t>(i));
    longest_ = std::max(longest_, text.size());
    if (!text.starts_with(model_.prefix)) continue;
    text.remove_prefix(model_.prefix.size());
    continues_.emplace(text, static_cast<std::int32_t>(i));
  }
}

std::vector<std::string> WordPiece::token_texts() const {
  std::vector<std::string> texts;
  texts.reserve(tokens_.size());
  for (const std::string& token : tokens_) {
    const bool continues = token.starts_with(model_.prefix);
    texts.push_back(continues ? token.substr(model_.prefix.size()) : " " + token);
  }
  return texts;
}

void WordPiece::encode_word(std::string_view word, std::vector<std::int32_t>& tokens) const {
  const std::size_t before = tokens.size();
  const auto is_unknown = [&] {
    tokens.resize(before);
    tokens.push_back(model_.unknown);
  };
  if (std::cmp_greater(word.size(), model_.most_characters) &&
      count_characters(word) > model_.most_characters) {
    return is_unknown();
  }
  for (std::size_t begin = 0; begin < word.size();) {
    const Tokens& candidates = begin == 0 ? begins_ : continues_;
    std::size_t end = std::min(word.size(), begin + longest_);
    auto found = candidates.end();
    for (; end > begin; --end) {
      if (end < word.size() && continues_character(word[end])) continue;
      found = candidates.find(word.substr(begin, end - begin));
      if (found != candidates.end()) break;
    }
    if (found == candidates.end()) return is_unknown();
    tokens.push_back(found->second);
    begin = end;
  }
}

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

std::string bert_text(std::string_view text, const TokenizerFile::BertText& options) {
  std::string made(text);
  if (options.cleans_text) made = clean(made);
  if (options.spaces_chinese) made = with_spaced_chinese(made);
  if (options.strips_accents) made = without_accents(made);
  if (options.lowers_case) made = in_lower_case(made);
  return made;
}

}  // namespace trireme
