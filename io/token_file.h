// Random access to the tokens of one shard.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>

#include "trireme/io/hdf5.h"
#include "trireme/io/token_shard.h"

#include "posix_file.h"

namespace trireme {

// Thread-safe. The file is opened at the first read: a rank opens only what it reads.
class TokenFile {
 public:
  explicit TokenFile(const TokenShardInfo& info);

  // Tokens [begin, begin + tokens.size()). Throws DataError: gone, truncated, or a token outside
  // the vocabulary.
  void read(std::int64_t begin, std::span<std::int32_t> tokens);

 private:
  template <class T>
  void read_as(std::int64_t begin, std::span<std::int32_t> tokens);
  const PosixFile& file();

  TokenShardInfo info_;
  std::mutex mutex_;
  std::optional<PosixFile> file_;         // contiguous tokens: pread
  std::optional<hdf5::Dataset> dataset_;  // chunked or compressed ones: HDF5
};

}  // namespace trireme
