// The files of a tokenizer in a folder, as Hugging Face's transformers has them.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/io/tokenizer.h"

namespace trireme {

// Returns the path of the file in a folder that is the tokenizer, or nothing if it has none of the
// known names.
std::optional<std::string> tokenizer_in_folder(const std::string& folder);

// The tokenizer that such a folder has, of its files' contents by name; null where none is known by
// its name. Throws DataError and ConfigError as load_tokenizer() does.
TokenizerPtr tokenizer_of_files(const std::map<std::string, std::string>& files);

// What a tokenizer_config.json says of the tokens around texts.
struct TokenizerConfig {
  std::optional<std::string> begin, end;  // bos_token, eos_token
  std::optional<bool> adds_begin;         // add_bos_token, where it or the class says so
  std::string class_name;                 // tokenizer_class; empty: it says none
};
// Throws DataError, which begins with `origin`, for a text that is no such file.
TokenizerConfig parse_tokenizer_config(std::string_view text, const std::string& origin);

}  // namespace trireme
