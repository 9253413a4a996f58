// A tokenizer with the files that belong to it, as people bring them with weights and want them
// back.
#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "trireme/io/tokenizer.h"

namespace trireme {

struct TokenizerFiles {
  TokenizerPtr tokenizer;  // null: none of the files is one that we read
  // Files that came with weights, contents by name: the tokenizer itself, tokenizer_config.json,
  // templates of chats, generation_config.json and so on.
  std::map<std::string, std::string> brought = {};
};

// The files of a tokenizer in a folder of weights, and what they make. `why_none` gets the reason
// why they make no tokenizer. Empty where there are none. Throws ConfigError for a file that cannot
// be read or is too large.
TokenizerFiles tokenizer_files_in(const std::string& folder, std::string& why_none);

// The files for other programs, contents by name: those that were brought, where they say how the
// tokenizer is to be used (tokenizer_config.json); else also what hugging_face_files() makes.
// `longest_text` in tokens. Empty where there are none. Throws DataError where a tokenizer that
// nobody brought cannot be written.
std::map<std::string, std::string> files_for_others(const TokenizerFiles& files,
                                                    std::int64_t longest_text);

// Puts files into a folder inside of `run_folder` called `tokenizer`, unless it holds the same
// ones. It gets its name when all are complete. Throws RunFolderError.
void write_tokenizer_folder(const std::string& run_folder,
                            const std::map<std::string, std::string>& files);

}  // namespace trireme
