// What a tokenizer.json of Hugging Face's tokenizers says, checked, as far as we can do it.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "io/tokenizers/decoder.h"
#include "io/tokenizers/normalizers.h"
#include "io/tokenizers/pre_tokenizers.h"

namespace trireme {

struct TokenizerFile {
  struct AddedToken {
    std::string text;
    std::int32_t token;
    bool is_special;
    bool is_normalized;  // found in the text after the normalizers
    bool is_only_added;  // the model does not have it
    bool is_single_word, strips_left, strips_right;
  };

  struct BytePairs {
    bool is_byte_level;
    std::vector<std::pair<std::int32_t, std::int32_t>> merges;  // the first is done first
    std::vector<std::int32_t> merged;                           // the token that each makes
    std::vector<std::int32_t> ranks;  // empty: in turn; of equal ones the leftmost is done first
    bool ignores_merges;              // a piece that is a token as a whole is that token
    bool has_byte_fallback;           // an unknown character is the tokens of its bytes, <0x0A>
    std::optional<std::int32_t> unknown;  // none: unknown characters are left out
    bool fuses_unknown;
  };
  struct WordPieces {
    std::string prefix;  // of tokens that continue a word: "##"
    std::int64_t most_characters;
    std::int32_t unknown;
  };

  struct UnigramPieces {
    std::vector<double> scores;  // of the first tokens
    std::int32_t unknown;
    bool has_byte_fallback;
  };

  std::string kind = "huggingface";  // of tokenizers that it makes
  std::string rank_pattern;          // by which a rank file splits texts; empty: it is none
  Normalizers normalizers;
  PreTokenizers pre_tokenizers;
  Decoder decoder;
  std::variant<BytePairs, WordPieces, UnigramPieces> model;
  std::vector<std::string> tokens;         // as the file spells them
  std::vector<AddedToken> added;           // in the order of the file; `tokens` has them too
  std::vector<std::string> before, after;  // names of the tokens that are put around a text
};

// Reads rank files as well (rank_file.h), by what they begin with. Throws DataError, which begins
// with `origin`, unless `text` is a tokenizer.json whose parts are
// all known; the message names the part that is not.
TokenizerFile parse_tokenizer_file(std::string_view text, const std::string& origin);

}  // namespace trireme
