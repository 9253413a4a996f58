// Which tokens come before and after texts, as files of a tokenizer say it to other programs.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "trireme/base/json.h"
#include "trireme/io/tokenizer.h"

namespace trireme {

struct TokenBefore {
  std::string name;
  std::int32_t token;
};

// The post-processor of a tokenizer.json that puts a token before each text.
Json begin_with(const TokenBefore& token);

struct FilesChanged {
  std::vector<std::string> names;   // of files that were changed
  std::vector<std::string> others;  // of those that say it still in another way
};

// Changes files of a tokenizer, contents by name, so that texts begin and end as those of `wanted`
// do, where they say it in another way. `said` is the tokenizer that the files make.
FilesChanged say_tokens_around(std::map<std::string, std::string>& files, const Tokenizer& said,
                               const Tokenizer& wanted);

}  // namespace trireme
