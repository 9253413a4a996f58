// Token shards. Each is one HDF5 file of tokenised text (io/DATA_SHARDS.md, "Token shards").
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/io/tokenizer.h"

namespace trireme {

// The content of a shard's header, checked against the file.
struct TokenShardInfo {
  std::string path;
  std::int64_t format_version = 0;    // 1: tokens have no checksums to check as they are read
  bool has_record = false;            // the header was checked before HDF5 saw it
  std::int64_t token_bytes = 0;       // 2 (uint16) or 4 (uint32)
  std::int64_t tokens = 0;            // including end-of-text tokens
  std::int64_t documents = 0;         // each ends with an end-of-text token
  std::int64_t original_bytes = 0;    // of the documents' text
  std::int64_t data_offset = -1;      // byte offset of the tokens in the file; -1: not contiguous
  std::int64_t checksum_offset = -1;  // the same for the blocks' checksums
  std::int64_t vocabulary = 0;
  std::int64_t end_of_text = 0;
  std::optional<std::int32_t> begin_of_text;  // none: documents begin with their text
  std::string tokenizer_kind;
  std::string tokenizer_model;
  std::string source;    // where the text came from
  std::string split;     // "train", "validation", or what another writer calls it
  std::string checksum;  // "xxh64:0123456789abcdef", of the tokens' bytes as stored in the file
};

// Returns the shards at a path: the path itself if it is a file; the files *.h5 in alphabetical
// order if it is a folder. Throws DataError for a folder that holds none or cannot be read.
std::vector<std::string> token_shard_files(const std::string& path);

// Reads and checks the header: the closing record if there is one, the counts, the tokenizer, and
// the starts of documents (in a long shard only the first ones and the last). It does not read the
// tokens: TokenDataset checks those that it reads, and verify_token_shard checks all. Throws
// DataError if the file is missing, foreign, damaged, truncated or contradicts itself.
TokenShardInfo read_token_shard_info(const std::string& path);

// Reads and checks everything. Throws a DataError that says what is damaged, and where.
TokenShardInfo verify_token_shard(const std::string& path);

// Writes one shard from front to back. There is no file at `path` until the complete shard is put
// there. Memory does not grow with the shard. Throws RunFolderError if the folder is
// unwritable or full.
class TokenShardWriter {
 public:
  TokenShardWriter(std::string path, TokenizerPtr tokenizer, std::string split, std::string source);
  ~TokenShardWriter();  // removes what was not committed
  TokenShardWriter(const TokenShardWriter&) = delete;
  TokenShardWriter& operator=(const TokenShardWriter&) = delete;

  // `document_starts` are rising indices into `tokens`.
  void append(std::span<const std::int32_t> tokens, std::span<const std::uint64_t> document_starts,
              std::uint64_t original_bytes);
  std::int64_t tokens() const;
  std::int64_t documents() const;

  // Writes the whole shard to the disk as `path`.partial, for a caller that renames it.
  void finish();
  // The same, and renames it to its path.
  TokenShardInfo commit();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
