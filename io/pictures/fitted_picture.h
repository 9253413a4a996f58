// A picture file, decoded and made to be of a size.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "io/pictures/picture.h"
#include "io/prepare/picture_source.h"

namespace trireme {

// decode_picture of a file. Throws DataError, also for a file that could not be read.
Picture decode_file(const PictureFile& file, std::optional<PictureSize> needed);

// Throws the DataError of a picture that cannot be read and is not left out; `problem` is what
// decode_file says of it.
[[noreturn]] void refuse_bad_picture(const std::string& problem);

// Returns the largest part in the middle of the picture that has the shape of `size`, in that size:
// (height, width, 3).
std::vector<std::uint8_t> fitted(const Picture& picture, PictureSize size);

}  // namespace trireme
