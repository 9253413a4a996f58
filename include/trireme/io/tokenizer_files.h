// A tokenizer with the files that belong to it, as people bring them with weights and want them
// back.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

#include "trireme/io/tokenizer.h"

namespace trireme {

struct TokenizerFiles {
  TokenizerPtr tokenizer;  // null: none of the files is one that we read
  // Files that came with weights, contents by name: the tokenizer itself, tokenizer_config.json,
  // templates of chats, generation_config.json and so on.
  std::map<std::string, std::string> brought = {};
};

struct FoundTokenizer {
  TokenizerFiles files;
  std::string why_none = {};               // why they make no tokenizer
  std::vector<std::string> left_out = {};  // of each file that cannot be taken: "PATH: why"
};
// The files of a tokenizer in a folder of weights. What is no plain file, cannot be read, is larger
// than Tokenizer::kMaxModelBytes or a pointer of Git LFS is left out. Throws ConfigError for the
// folder.
FoundTokenizer tokenizer_files_in(const std::string& folder);

struct FilesForOthers {
  std::map<std::string, std::string> files;  // contents by name
  std::string remark = {};                   // for people; empty: there is nothing to say
};
// The files for other programs: those that were brought, and where they do not say how the
// tokenizer is to be used (tokenizer_config.json), also what hugging_face_files() makes. Where they
// say that texts begin or end in another way than the tokenizer's, they are changed in that, and
// the remark says so; else they are as they came. `longest_text` in tokens. Empty where there are
// none. Throws DataError where a tokenizer that nobody brought cannot be written.
FilesForOthers files_for_others(const TokenizerFiles& files, std::int64_t longest_text);

// Puts files into a folder inside of `run_folder` called `tokenizer`, unless it holds the same
// ones. It gets its name when all are complete. Throws RunFolderError.
void write_tokenizer_folder(const std::string& run_folder,
                            const std::map<std::string, std::string>& files);

// The same, but what somebody else has written there or changed stays. Nobody did where a file is
// as one of the `earlier` ones, which are asked for if need be. Returns the names of those that
// stay in place of one of `files`.
using SetsOfFiles = std::vector<std::map<std::string, std::string>>;
std::vector<std::string> update_tokenizer_folder(const std::string& run_folder,
                                                 const std::map<std::string, std::string>& files,
                                                 const std::function<SetsOfFiles()>& earlier);

}  // namespace trireme
