// What a tokenizer.json of Hugging Face's tokenizers says, checked, as far as we can do it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "io/tokenizers/split_pattern.h"
#include "io/tokenizers/unicode_text.h"

namespace trireme {

struct TokenizerFile {
  // What BertNormalizer does.
  struct BertText {
    bool cleans_text, spaces_chinese, strips_accents, lowers_case;
  };
  using Normalizer = std::variant<NormalForm, BertText>;

  struct AddedToken {
    std::string text;
    std::int32_t token;
    bool is_special;
    bool is_normalized;  // found in the text after the normalizers
    bool is_only_added;  // the model does not have it
  };

  // Byte-level BPE.
  struct BytePairs {
    std::vector<std::pair<std::int32_t, std::int32_t>> merges;  // the first is done first
    std::vector<std::int32_t> merged;                           // the token that each makes
    bool ignores_merges;  // a piece that is a token as a whole is that token
  };
  struct WordPieces {
    std::string prefix;  // of tokens that continue a word: "##"
    std::int64_t most_characters;
    std::int32_t unknown;
  };

  std::vector<Normalizer> normalizers;
  std::vector<SplitPattern> splits;
  std::variant<BytePairs, WordPieces> model;
  std::vector<std::string> tokens;  // as the file spells them
  std::vector<AddedToken> added;    // in the order of the file; `tokens` has them too
};

// Throws DataError, which begins with `origin`, unless `text` is a tokenizer.json of byte-level BPE
// or of WordPiece whose parts are all known; the message names the part that is not.
TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& origin);

}  // namespace trireme
