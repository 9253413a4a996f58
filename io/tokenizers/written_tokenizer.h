// The parts of a tokenizer.json that is written.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "trireme/base/json.h"
#include "trireme/io/tokenizer.h"

namespace trireme {

struct WrittenTokenizer {
  Json model, normalizer, pre_tokenizer, decoder;  // null: none
  Json added = Json::array();

  // Call these in the order of the tokens' numbers. Special ones are found in texts as they are,
  // others after the normalizer.
  void add_special(std::string_view text, std::int32_t token) { add(text, token, true); }
  void add_text(std::string_view text, std::int32_t token) { add(text, token, false); }

 private:
  void add(std::string_view text, std::int32_t token, bool is_special);
};

// Throws DataError, which says that a tokenizer cannot be written, and why.
[[noreturn]] void refuse_to_write(const std::string& why);

// {"type": type, key: value}, and several such parts as one, or none as null. `key`: what a
// sequence calls its items.
Json part_of(const char* type, const char* key, Json value);
Json sequence_of(const char* key, Json parts);
// Finds all matches of a pattern: {"String": text} or {"Regex": text}.
Json split_at(std::string_view regex);

// All of a tokenizer over a SentencePiece model. Throws DataError.
WrittenTokenizer written_pieces(const Tokenizer& tokenizer);

}  // namespace trireme
