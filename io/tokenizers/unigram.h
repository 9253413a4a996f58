// Unigram: of all ways to cut a word into pieces, the one whose scores add up to the most.
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
class Unigram {
 public:
  // Words are never cut into `end_of_text`. Throws DataError, which begins with `origin`, if it is
  // the token for unknown characters.
  Unigram(const TokenizerFile& file, std::int32_t end_of_text, const std::string& origin);

  void encode_word(std::string_view word, std::vector<std::int32_t>& tokens) const;
  // Whether every byte has a token of its own.
  bool has_bytes() const { return has_bytes_; }
  std::int32_t token_of_byte(char byte) const {
    return byte_token_[static_cast<unsigned char>(byte)];
  }

 private:
  // A tree of the pieces' bytes. The children of a node are a range of edges_ by rising bytes.
  struct Node {
    std::int32_t token = -1;
    std::uint32_t first = 0, count = 0;
  };
  struct Edge {
    unsigned char byte;
    std::uint32_t node;
  };
  struct Best;

  void build(std::uint32_t node, std::size_t begin, std::size_t end, std::size_t depth);
  const Node* child(const Node& node, char byte) const;
  void add_unknown(std::string_view text, std::vector<std::int32_t>& tokens) const;

  std::vector<std::string> tokens_;
  TokenizerFile::UnigramPieces model_;
  double unknown_score_ = 0.0;
  std::unordered_map<std::string_view, std::int32_t> numbers_;  // views of tokens_
  std::vector<std::int32_t> sorted_;                            // while the tree is built
  std::vector<Node> nodes_;
  std::vector<Edge> edges_;
  std::array<std::int32_t, 256> byte_token_{};
  bool has_bytes_ = false;
};

}  // namespace trireme
