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

}  // namespace trireme
