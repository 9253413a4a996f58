// SentencePiece's map of characters, which a tokenizer.json holds as precompiled_charsmap: what
// short texts become in normal form.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme {

class CharacterMap {
 public:
  // Throws DataError, which begins with `origin`, unless `bytes` are such a map.
  CharacterMap(std::string_view bytes, const std::string& origin);
  static CharacterMap from_base64(std::string_view base64, const std::string& origin);

  // The text as Hugging Face's tokenizers change it: what a reader takes for one character at a
  // time, or else its characters one by one.
  std::string apply(std::string_view text) const;

  // The longest beginning of a text that the map has, and what it becomes.
  struct Match {
    std::size_t length = 0;  // 0: it has none
    std::string_view becomes;
  };
  Match longest(std::string_view text) const;

 private:
  // Calls `on_match(length, becomes)` for the beginnings of `text` that the map has, the shortest
  // first, until it returns false.
  template <class OnMatch>
  void each_match(std::string_view text, OnMatch on_match) const;
  // What the shortest beginning of `text` that the map has becomes. It stands for all of `text`.
  std::optional<std::string_view> find(std::string_view text) const;

  std::vector<std::uint32_t> units_;  // a double array, as darts-clone writes it
  std::string texts_;                 // each ended by a zero byte
};

}  // namespace trireme
