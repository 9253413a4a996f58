// Tokens that are looked for in a text as they are written, before anything else is done to it.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

class AddedTokens {
 public:
  struct Token {
    std::string text;    // not empty
    std::int32_t token;  // what it becomes; -1: it stays text
  };
  explicit AddedTokens(std::vector<Token> tokens);

  bool empty() const { return tokens_.empty(); }
  std::size_t longest() const { return longest_; }

  // Calls `on_text(part)` and `on_token(token, part)` for the parts of a text in turn. Of tokens
  // that begin at the same place the longest counts. `on_kept(part)` hears of each token that stays
  // text before `on_text` does: no other token is looked for in it.
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
      if (token->token >= 0) {
        if (at > begin) on_text(text.substr(begin, at - begin));
        on_token(token->token, text.substr(at, end - at));
        begin = end;
      } else {
        on_kept(text.substr(at, end - at));
      }
      at = end;
    }
    if (begin < text.size()) on_text(text.substr(begin));
  }

 private:
  const Token* find(std::string_view text) const {
    const auto& range = begins_with_[static_cast<unsigned char>(text.front())];
    for (std::size_t i = range.begin; i < range.end; ++i) {
      if (text.starts_with(tokens_[i].text)) return &tokens_[i];
    }
    return nullptr;
  }

  struct Range {
    std::size_t begin = 0, end = 0;
  };
  std::vector<Token> tokens_;  // by first byte, the longest first
  std::array<Range, 256> begins_with_{};
  std::size_t longest_ = 0;
};

}  // namespace trireme
