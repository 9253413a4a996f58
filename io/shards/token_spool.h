// Tokens and the starts of their documents, in temporary files, before a shard can hold them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "io/files/spool_file.h"
#include "io/shards/token_shard_contents.h"

namespace trireme {

// Throws RunFolderError. The destructor removes the files.
class TokenSpool {
 public:
  // The files are `path`.tokens.partial and `path`.documents.partial.
  TokenSpool(const std::string& path, int token_bytes);

  // `document_starts` are rising indices into `tokens`.
  void append(std::span<const std::int32_t> tokens, std::span<const std::uint64_t> document_starts);
  // What was appended can be read from the files, after sync() also by other nodes.
  void flush();
  void sync();

  std::uint64_t tokens() const { return token_count_; }
  std::uint64_t documents() const { return document_count_; }
  TokenStretch all() const;

 private:
  int token_bytes_;
  SpoolFile tokens_, documents_;
  std::vector<std::uint16_t> narrow_;
  std::uint64_t token_count_ = 0, document_count_ = 0;
};

}  // namespace trireme
