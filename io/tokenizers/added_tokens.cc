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

}  // namespace trireme
