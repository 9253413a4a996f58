// The normalizers of a tokenizer.json: what is done to a text before it is split.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "io/tokenizers/bert_text.h"
#include "io/tokenizers/character_map.h"
#include "io/tokenizers/split_pattern.h"
#include "io/tokenizers/unicode_text.h"

namespace trireme {

// Where a part of a text lies. Some steps add something to a text's beginning.
enum class TextPlace {
  kBegins,      // the text begins with it
  kAfterToken,  // an added token is before it
  kGoesOn,      // it goes on where another part was cut off
};

class Normalizers {
 public:
  struct Lowercase {};
  struct StripAccents {};  // takes marks away, and takes none apart
  struct Strip {
    bool left, right;
  };
  struct Prepend {
    std::string text;
  };
  struct Replace {
    SplitPattern pattern;
    std::string content;
  };
  using Step = std::variant<NormalForm, BertText, Lowercase, StripAccents, Strip, Prepend, Replace,
                            CharacterMap>;

  Normalizers() = default;
  explicit Normalizers(std::vector<Step> steps);

  bool empty() const { return steps_.empty(); }
  // Whether the beginning of a text is treated in another way than the rest.
  bool change_beginnings() const;
  // Whether ASCII's white space stays white space, whatever is around it.
  bool keep_spaces() const;
  // Whether a text may be normalised in parts that begin with an ASCII character. That character
  // itself may change.
  bool allow_parts() const { return allow_parts_; }

  // `place` becomes kAfterToken where the text's first character is gone. `text` is valid UTF-8.
  std::string apply(std::string_view text, TextPlace& place) const;
  std::string apply(std::string_view text, TextPlace&& place) const { return apply(text, place); }
  // Whether apply() would give the same text.
  bool leave(std::string_view text) const;

  // What the two sides of a cut before white space become: the character before it, and the white
  // space. False: they may depend on each other or on what is around them.
  bool normalise_sides(std::string& before, std::string& after) const;

 private:
  std::vector<Step> steps_;
  bool allow_parts_ = true;
};

}  // namespace trireme
