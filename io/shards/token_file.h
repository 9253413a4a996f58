// Random access to the tokens of shards.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "trireme/io/hdf5.h"
#include "trireme/io/token_shard.h"

#include "io/files/posix_file.h"

namespace trireme {

// An open shard. Thread-safe. All members throw DataError if the file is gone or truncated, if the
// tokens do not match the checksums of their blocks (format version 2), or if a token is outside
// the vocabulary.
class TokenFile {
 public:
  explicit TokenFile(const TokenShardInfo& info);

  // Reads tokens [begin, begin + tokens.size()). Reads and checks the whole blocks around them,
  // each once.
  void read(std::int64_t begin, std::span<std::int32_t> tokens);
  // The same, but in the shard's own element type T, uint16 or uint32. The result is a view into
  // `blocks`.
  template <class T>
  std::span<const T> read(std::int64_t begin, std::int64_t count, std::vector<T>& blocks);

 private:
  template <class T>
  std::span<const T> read_checked(std::int64_t begin, std::int64_t end, std::vector<T>& blocks);
  template <class T>
  void read_dataset(const char* name, std::int64_t offset, std::optional<hdf5::Dataset>& dataset,
                    std::int64_t begin, std::span<T> values);
  void check_blocks(std::int64_t first, std::span<const std::byte> bytes);

  TokenShardInfo info_;
  std::optional<PosixFile> file_;                    // contiguous datasets: pread
  std::mutex mutex_;                                 // guards the two below
  std::optional<hdf5::Dataset> tokens_, checksums_;  // chunked or compressed ones: HDF5
};

}  // namespace trireme
