// Shared by the writer and the readers of token shards (format: io/DATA_SHARDS.md, "Token shards").
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

namespace trireme {

inline constexpr std::int64_t kTokenShardVersion = 2;
// The datasets that have checksums of their own.
inline constexpr std::array kTokenShardData = {"/tokens", "/documents", "/token_checksums"};

// The attribute of shards whose documents begin with a token of their own.
inline constexpr const char* kBeginOfText = "begin_of_text";

// In version 2 each block of this many bytes of /tokens has a checksum in /token_checksums.
inline constexpr std::int64_t kBlockBytes = 4096;

constexpr std::int64_t blocks_of(std::int64_t bytes) {
  return (bytes + kBlockBytes - 1) / kBlockBytes;
}
std::uint64_t block_checksum(const void* bytes, std::size_t count);

std::string checksum_text(std::uint64_t digest);  // "xxh64:0123456789abcdef"
std::string checksum_of_model(const std::string& model);

// The XXH64 (seed 0) of bytes that come in parts.
class RunningChecksum {
 public:
  RunningChecksum();
  ~RunningChecksum();
  void add(const void* bytes, std::size_t count);
  std::string text() const;  // as checksum_text

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace trireme
