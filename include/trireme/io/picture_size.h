#pragma once

#include <cstdint>

namespace trireme {

// The size of a picture in pixels.
struct PictureSize {
  std::int64_t height = 0, width = 0;
  bool operator==(const PictureSize&) const = default;
};

}  // namespace trireme
