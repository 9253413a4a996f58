// A token shard whose tokens lie in temporary files, in stretches, as they were made.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "trireme/io/hdf5.h"
#include "trireme/io/tokenizer.h"

namespace trireme {

// Tokens that follow each other, with the documents that begin among them.
struct TokenStretch {
  std::string tokens_path;         // of elements of the shard's size
  std::uint64_t token = 0;         // the first one, as an index into that file
  std::uint64_t tokens = 0;        // how many
  std::string documents_path;      // of uint64, indices of tokens
  std::uint64_t document = 0;      // the first one, as an index into that file
  std::uint64_t documents = 0;     // how many
  std::uint64_t counted_from = 0;  // the index that the first token has in that file
};

struct TokenShardContents {
  TokenizerPtr tokenizer;
  std::string split, source;
  std::uint64_t original_bytes = 0;
  std::vector<TokenStretch> stretches;
};

// Bytes of a token in a shard.
int token_bytes_of(const Tokenizer& tokenizer);

// Fills a new file, whose bytes depend on the tokens and the documents, and not on the stretches.
// Throws RunFolderError.
void write_token_shard(hdf5::File& file, const TokenShardContents& contents);

}  // namespace trireme
