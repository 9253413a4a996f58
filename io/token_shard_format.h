// What writer and reader of token shards share.
#pragma once

#include <cstdint>
#include <string>

namespace trireme {

inline constexpr std::int64_t kTokenShardVersion = 1;

std::string checksum_text(std::uint64_t digest);  // "xxh64:0123456789abcdef"
std::string checksum_of_model(const std::string& model);

}  // namespace trireme
