// The decoders of a tokenizer.json, as far as they say which bytes a token stands for.
#pragma once

#include <string>
#include <string_view>
#include <variant>
#include <vector>

namespace trireme {

class Decoder {
 public:
  struct Replace {
    std::string pattern, content;
  };
  struct ByteFallback {};
  struct ByteLevel {};
  using Step = std::variant<Replace, ByteFallback, ByteLevel>;

  Decoder() = default;
  // `takes_space`: the space that a text begins with is taken away.
  Decoder(std::vector<Step> steps, bool takes_space)
      : steps_(std::move(steps)), takes_space_(takes_space) {}

  bool takes_space() const { return takes_space_; }
  std::string bytes_of(std::string_view token) const;

 private:
  std::vector<Step> steps_;
  bool takes_space_ = false;
};

// "<0x0A>", a token that stands for a byte.
std::string name_of_byte(char byte);
// The byte that such a token stands for; -1: it is none.
int named_byte(std::string_view token);

// The bytes that a token of byte-level BPE stands for; false: it has characters that stand for
// none.
bool read_visible_bytes(std::string_view token, std::string& bytes);

// The other way.
std::string visible_bytes(std::string_view bytes);

}  // namespace trireme
