// Sizes of pictures.
#pragma once

#include <cstdint>
#include <span>

#include "trireme/io/picture_size.h"

namespace trireme {

// A part of a picture, in pixels; its edges may lie inside pixels.
struct PictureWindow {
  double top = 0, left = 0, height = 0, width = 0;
};

// The largest window in the middle of a picture that has the shape of `shape`.
PictureWindow central_window(PictureSize picture, PictureSize shape);

// Makes a picture of `to_size` of a window: a triangle filter, as wide as it must be so that no
// pixel of the window is left out. It sees no pixel outside of the window. The window lies in the
// picture. The result depends on nothing but the arguments: the sums are in whole numbers.
void resample(std::span<const std::uint8_t> pixels, PictureSize size, const PictureWindow& window,
              PictureSize to_size, std::span<std::uint8_t> to);

}  // namespace trireme
