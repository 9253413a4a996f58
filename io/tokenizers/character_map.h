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
  // Throws DataError, which begins with `origin`, unless `base64` is such a map.
  CharacterMap(std::string_view base64, const std::string& origin);

  // The text as Hugging Face's tokenizers change it: what a reader takes for one character at a
  // time, or else its characters one by one.
  std::string apply(std::string_view text) const;

 private:
  // What the shortest beginning of `text` that the map has becomes. It stands for all of `text`.
  std::optional<std::string_view> find(std::string_view text) const;

  std::vector<std::uint32_t> units_;  // a double array, as darts-clone writes it
  std::string texts_;                 // each ended by a zero byte
};

}  // namespace trireme
