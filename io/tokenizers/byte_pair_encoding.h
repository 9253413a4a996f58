// BPE: a word's characters or bytes are tokens at first, and neighbours merge in the order of the
// merges' ranks.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <vector>

#include "io/tokenizers/tokenizer_file.h"

namespace trireme {

// Immutable; several threads may encode at once.
class BytePairEncoding {
 public:
  // Throws DataError, which begins with `origin`, unless each byte is a token where words are
  // bytes, and neither a merge nor the unknown token is `end_of_text`.
  BytePairEncoding(const TokenizerFile& file, std::int32_t end_of_text, const std::string& origin);

  // The tokens of the file; where words are bytes, the bytes that they stand for.
  const std::vector<std::string>& token_bytes() const { return tokens_; }

  // `word` is valid UTF-8, or any bytes where words are bytes.
  void encode_word(std::string_view word, std::vector<std::int32_t>& tokens) const;
  // Whether every byte has a token of its own.
  bool has_bytes() const { return has_bytes_; }
  std::int32_t token_of_byte(char byte) const {
    return byte_token_[static_cast<unsigned char>(byte)];
  }

  // Whether two sides of a word have the same tokens by themselves: no token goes across.
  bool may_part(std::string_view before, std::string_view after) const;
  // How much of a word can be encoded by itself.
  std::size_t unit_length(std::string_view word) const;

 private:
  struct Merge {
    std::int32_t rank, token;
  };

  void find_bytes(const std::string& origin);
  void find_pairs(std::string_view word);
  void add_characters(std::string_view word, std::vector<std::int32_t>& tokens) const;
  void merge_word(std::string_view word, std::vector<std::int32_t>& tokens) const;
  const Merge* merge_of(std::int32_t left, std::int32_t right) const;

  std::vector<std::string> tokens_;  // what the views are of
  TokenizerFile::BytePairs model_;   // without its merges
  std::array<std::int32_t, 256> byte_token_{};
  bool has_bytes_ = false;
  std::unordered_map<std::uint64_t, Merge> merges_;  // by the two tokens
  std::unordered_map<std::string_view, std::int32_t> words_;
  std::unordered_map<std::string_view, std::int32_t> whole_words_;  // that stay one token
  std::unordered_set<std::uint64_t> pairs_;  // of characters in tokens, as find_pairs() notes them
};

}  // namespace trireme
