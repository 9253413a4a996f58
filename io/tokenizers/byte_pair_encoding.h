// Byte-level BPE: a word's bytes are tokens at first, and neighbours merge in the order of the
// merges' ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "io/tokenizers/tokenizer_file.h"

namespace trireme {

// Immutable; several threads may encode at once.
class BytePairEncoding {
 public:
  // Throws DataError, which begins with `origin`, unless each byte is a token, and none of them nor
  // a merge makes `end_of_text`.
  BytePairEncoding(const TokenizerFile& file, std::int32_t end_of_text, const std::string& origin);

  // The bytes that each token of the file stands for.
  std::vector<std::string> token_bytes() const;

  void encode_word(std::string_view word, std::vector<std::int32_t>& tokens) const;
  std::int32_t token_of_byte(char byte) const {
    return byte_token_[static_cast<unsigned char>(byte)];
  }

 private:
  struct Merge {
    std::int32_t rank, token;
  };
  struct Run;

  void merge_word(std::string_view word, std::vector<std::int32_t>& tokens) const;
  const Merge* merge_of(std::int32_t left, std::int32_t right) const;

  std::vector<std::string> token_bytes_;
  std::array<std::int32_t, 256> byte_token_{};
  std::unordered_map<std::uint64_t, Merge> merges_;  // by the two tokens
  // Words that are one token. The views are of token_bytes_.
  std::unordered_map<std::string_view, std::int32_t> whole_words_;
};

}  // namespace trireme
