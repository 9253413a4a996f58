#include "io/tokenizers/added_tokens.h"

#include <algorithm>

namespace trireme {

AddedTokens::AddedTokens(std::vector<Token> tokens) : tokens_(std::move(tokens)) {
  const auto first_byte = [](const Token& token) {
    return static_cast<unsigned char>(token.text.front());
  };
  // There is nothing to look for: what is found would stay text.
  if (std::ranges::all_of(tokens_, [](const Token& token) { return token.token < 0; })) {
    tokens_.clear();
  }
  std::ranges::sort(tokens_, [&](const Token& a, const Token& b) {
    if (first_byte(a) != first_byte(b)) return first_byte(a) < first_byte(b);
    return a.text.size() != b.text.size() ? a.text.size() > b.text.size() : a.text < b.text;
  });
  for (std::size_t i = 0; i < tokens_.size(); ++i) {
    Range& range = begins_with_[first_byte(tokens_[i])];
    if (range.end == 0) range.begin = i;
    range.end = i + 1;
    longest_ = std::max(longest_, tokens_[i].text.size());
  }
}

bool AddedTokens::may_span(std::string_view before, std::string_view after) const {
  const std::string_view first = after.substr(0, utf8_length(after));
  return std::ranges::any_of(tokens_, [&](const Token& token) {
    const bool looks_around = token.is_single_word || token.strips_left || token.strips_right;
    return token.text.find(first, utf8_length(token.text)) != std::string::npos ||
           (looks_around && (before.ends_with(token.text) || after.starts_with(token.text)));
  });
}

bool AddedTokens::has_word_beside(std::string_view text, std::size_t begin, std::size_t end) {
  if (begin > 0) {
    const std::string_view before = text.substr(0, begin);
    if (is_word_character(first_character(before.substr(last_character_begin(before)))))
      return true;
  }
  return end < text.size() && is_word_character(first_character(text.substr(end)));
}

std::size_t AddedTokens::begin_of_spaces(std::string_view text, std::size_t at, std::size_t least) {
  while (at > least) {
    const std::size_t before = last_character_begin(text.substr(0, at));
    if (!is_white_space(first_character(text.substr(before)))) break;
    at = before;
  }
  return std::max(at, least);
}

std::size_t AddedTokens::end_of_spaces(std::string_view text, std::size_t at) {
  while (at < text.size() && is_white_space(first_character(text.substr(at)))) {
    at += utf8_length(text.substr(at));
  }
  return at;
}

}  // namespace trireme
