// Reads files that list the byte strings of tokens by rank: tiktoken's, of which Llama 3's
// tokenizer.model is known, and tekken.json of Mistral.
#pragma once

#include <string>
#include <string_view>

#include "trireme/base/json.h"

#include "io/tokenizers/tokenizer_file.h"

namespace trireme {

// Whether a file's first line is that of a rank file of tiktoken.
bool is_tiktoken_file(std::string_view text);
// Whether JSON is a tekken.json, not a tokenizer.json.
bool is_tekken_file(const Json& json);

// Both throw DataError, which begins with `origin`; the second JsonError as well.
TokenizerFile parse_tiktoken_file(std::string_view text, const std::string& origin);
TokenizerFile parse_tekken_file(const Json& json, const std::string& origin);

}  // namespace trireme
