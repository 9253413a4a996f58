// Token shards: one HDF5 file of tokenised text (io/README.md, "Token shards").
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/io/tokenizer.h"

namespace trireme {

// What a shard's header says, checked against the file.
struct TokenShardInfo {
  std::string path;
  std::int64_t format_version = 0;    // 1: tokens are not checked as they are read
  bool has_record = false;            // the header was checked before HDF5 saw it
  std::int64_t token_bytes = 0;       // 2 (uint16) or 4 (uint32)
  std::int64_t tokens = 0;            // end-of-text tokens included
  std::int64_t documents = 0;         // each ends with an end-of-text token
  std::int64_t original_bytes = 0;    // of the documents' text
  std::int64_t data_offset = -1;      // byte offset of the tokens in the file; -1: not contiguous
  std::int64_t checksum_offset = -1;  // the same of the blocks' checksums
  std::int64_t vocabulary = 0;
  std::int64_t end_of_text = 0;
  std::string tokenizer_kind;
  std::string tokenizer_model;
  std::string source;    // where the text came from
  std::string split;     // "train", "validation", or what another writer calls it
  std::string checksum;  // "xxh64:0123456789abcdef", of the tokens' bytes as they lie in the file
};

// The shards at a path: a file is itself, of a folder it is the files *.h5 in alphabetical order.
// Throws DataError for a folder that holds none or cannot be read.
std::vector<std::string> token_shard_files(const std::string& path);

// Reads and checks the header: the closing record where there is one, the counts, the tokenizer,
// and where documents start, of a long shard only the first of them and the last. Tokens are not
// looked at: TokenDataset checks what it reads, verify_token_shard everything. Throws DataError
// where the file is missing, foreign, damaged, truncated or contradicts itself.
TokenShardInfo read_token_shard_info(const std::string& path);

// Reads and checks everything. Throws DataError that says what is damaged, and where.
TokenShardInfo verify_token_shard(const std::string& path);

// Writes one shard, front to back. Nothing stands under `path` until commit; then the whole shard
// does. Memory does not grow with the shard. Errors are RunFolderError: unwritable or full.
class TokenShardWriter {
 public:
  TokenShardWriter(std::string path, TokenizerPtr tokenizer, std::string split, std::string source);
  ~TokenShardWriter();  // removes what was not committed
  TokenShardWriter(const TokenShardWriter&) = delete;
  TokenShardWriter& operator=(const TokenShardWriter&) = delete;

  // `document_starts` are indices into `tokens`, rising.
  void append(std::span<const std::int32_t> tokens, std::span<const std::uint64_t> document_starts,
              std::uint64_t original_bytes);
  std::int64_t tokens() const;
  std::int64_t documents() const;

  // Brings the shard to the disk and then to its name.
  TokenShardInfo commit();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
