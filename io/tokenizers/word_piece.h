// WordPiece: a word is cut into the longest tokens from its beginning on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/tokenizers/tokenizer_file.h"

namespace trireme {

// Immutable; several threads may encode at once.
class WordPiece {
 public:
  // Words are never cut into `end_of_text`. Throws DataError, which begins with `origin`, if it is
  // the token for unknown words.
  WordPiece(const TokenizerFile& file, std::int32_t end_of_text, const std::string& origin);

  // The text that each token of the file stands for: a space comes before those that begin a word.
  std::vector<std::string> token_texts() const;

  // Appends the tokens of a word, or the one for unknown words if it cannot be cut into tokens or
  // has too many characters. `word` is valid UTF-8.
  void encode_word(std::string_view word, std::vector<std::int32_t>& tokens) const;

 private:
  using Tokens = std::unordered_map<std::string_view, std::int32_t>;

  std::vector<std::string> tokens_;  // what the keys of the others are views of
  TokenizerFile::WordPieces model_;
  Tokens begins_, continues_;  // a word; the latter without the prefix
  std::size_t longest_ = 0;
};

}  // namespace trireme
