// Shared by the writer and the readers of image shards (format: io/DATA_SHARDS.md, "Image shards").
#pragma once

#include <array>
#include <cstdint>
#include <span>

namespace trireme {

inline constexpr std::int64_t kImageShardVersion = 1;
inline constexpr std::int64_t kImageChannels = 3;
// The datasets that have checksums of their own.
inline constexpr std::array kImageShardData = {"/images", "/labels", "/image_checksums"};

// The checksum of a picture: the XXH3 of its pixels, with its label as the seed.
std::uint64_t picture_checksum(std::span<const std::uint8_t> pixels, std::int32_t label);

}  // namespace trireme
