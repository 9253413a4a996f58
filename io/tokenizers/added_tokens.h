// Tokens that are looked for in a text as they are written, besides what the model makes of it.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizers/unicode_text.h"

namespace trireme {

class AddedTokens {
 public:
  struct Token {
    std::string text;                                // not empty
    std::int32_t token;                              // what it becomes; -1: it stays text
    bool is_single_word = false;                     // no character of a word is beside it
    bool strips_left = false, strips_right = false;  // white space beside it is part of it
  };
  explicit AddedTokens(std::vector<Token> tokens);

  bool empty() const { return tokens_.empty(); }
  std::size_t longest() const { return longest_; }
  bool strip_left() const {
    return std::ranges::any_of(tokens_, [](const Token& token) { return token.strips_left; });
  }

  // Calls `on_text(part)` and `on_token(token, part)` for the parts of a text in turn. Of tokens
  // that begin at the same place the longest counts. `on_kept(part)` hears of each token that stays
  // text before `on_text` does: no other token is looked for in it. One that is no single word
  // counts with the characters beside it.
  template <class OnText, class OnToken, class OnKept>
  void divide(std::string_view text, OnText on_text, OnToken on_token, OnKept on_kept) const {
    std::size_t begin = 0;
    for (std::size_t at = tokens_.empty() ? text.size() : 0; at < text.size();) {
      const Token* token = find(text.substr(at));
      if (!token) {
        ++at;
        continue;
      }
      const std::size_t end = at + token->text.size();
      if (token->token < 0) {
        on_kept(text.substr(at, end - at));
      } else if (token->is_single_word && has_word_beside(text, at, end)) {
        const std::size_t first = at - std::min<std::size_t>(at, 1);
        on_kept(text.substr(first, end + 1 - first));
      } else {
        const std::size_t from = token->strips_left ? begin_of_spaces(text, at, begin) : at;
        const std::size_t to = token->strips_right ? end_of_spaces(text, end) : end;
        if (from > begin) on_text(text.substr(begin, from - begin));
        if (to > from) {  // else it is white space that the token before has stripped
          on_token(token->token, text.substr(from, to - from));
          begin = to;
        }
      }
      at = end;
    }
    if (begin < text.size()) on_text(text.substr(begin));
  }

  // Whether a cut between the two may change what is found, where white space follows it.
  bool may_span(std::string_view before, std::string_view after) const;

 private:
  const Token* find(std::string_view text) const {
    const auto& range = begins_with_[static_cast<unsigned char>(text.front())];
    for (std::size_t i = range.begin; i < range.end; ++i) {
      if (text.starts_with(tokens_[i].text)) return &tokens_[i];
    }
    return nullptr;
  }
  static bool has_word_beside(std::string_view text, std::size_t begin, std::size_t end);
  static std::size_t begin_of_spaces(std::string_view text, std::size_t at, std::size_t least);
  static std::size_t end_of_spaces(std::string_view text, std::size_t at);

  struct Range {
    std::size_t begin = 0, end = 0;
  };
  std::vector<Token> tokens_;  // by first byte, the longest first
  std::array<Range, 256> begins_with_{};
  std::size_t longest_ = 0;
};

}  // namespace trireme
