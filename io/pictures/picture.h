// Pictures in files: JPEG and PNG become 8-bit RGB.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "trireme/io/picture_size.h"

namespace trireme {

struct Picture {
  PictureSize size;
  std::vector<std::uint8_t> pixels;  // (height, width, 3)
};

// Larger pictures are refused before memory is allocated for them.
inline constexpr std::int64_t kMostPixels = 100'000'000;
inline constexpr std::uint64_t kMostPictureBytes = std::uint64_t{256} << 20;  // of a file

// Whether a file's name ends with .jpg, .jpeg or .png, in letters of either case.
bool has_picture_name(std::string_view name);

// `name` names the file in errors. Grey and CMYK become RGB, 16 bits become 8, and white shows
// through transparent parts; samples count as sRGB, whatever the file says of its gamma or profile.
// With `needed`, a JPEG that is more than twice as high and as wide may come out 2, 4 or 8 times
// smaller, but not below twice that size. The result depends on these bytes alone. Throws DataError
// if the bytes are neither JPEG nor PNG, if they are damaged or end too early, or if the picture is
// too large. Thread-safe.
Picture decode_picture(const std::string& name, std::span<const std::uint8_t> bytes,
                       std::optional<PictureSize> needed = {});

}  // namespace trireme
