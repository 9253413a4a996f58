// What a SentencePiece model does with a text before it is cut into pieces.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "io/tokenizers/character_map.h"

namespace trireme {

class SentencePieceNormalizer {
 public:
  // `model` is a serialised ModelProto, which SentencePiece has read. Throws DataError, which
  // begins with `origin`, for a map of characters that is damaged, and for what is not supported.
  SentencePieceNormalizer(std::string_view model, const std::string& origin);

  // Whether it changes nothing but that spaces become marks.
  bool is_plain() const { return !map_ && !has_prefix_ && !strips_; }
  bool has_prefix() const { return has_prefix_; }  // a space before each text

  // A byte that is not UTF-8 becomes U+FFFD. `begins`, `ends`: the text does so with it.
  std::string apply(std::string_view text, bool begins, bool ends) const;

 private:
  void keep(std::string_view text);  // of a piece that users have defined
  // The text's first characters, and what they become.
  CharacterMap::Match next(std::string_view text) const;

  std::optional<CharacterMap> map_;
  std::array<std::vector<std::string>, 256> kept_;  // by first byte, the longest first
  bool has_prefix_;
  bool strips_;  // spaces at both ends, and all but one of several
};

}  // namespace trireme
