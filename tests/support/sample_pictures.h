// Pictures, files of them and archives of these, made for tests.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "trireme/io/picture_size.h"

namespace trireme::testing {

using Bytes = std::vector<std::uint8_t>;

// Smooth colours that differ from seed to seed: (height, width, channels).
Bytes sample_pixels(PictureSize size, unsigned seed, int channels = 3);

enum class JpegKind { kColour, kGrey, kCmyk };
std::string make_jpeg(PictureSize size, unsigned seed, JpegKind kind = JpegKind::kColour);

enum class PngKind { kRgb, kGrey, kRgba, kRgb16, kPalette };
std::string make_png(PictureSize size, unsigned seed, PngKind kind = PngKind::kRgb);
// Eight bits of red, green and blue.
std::string make_png(PictureSize size, const Bytes& pixels);
// What stands in a PNG; `colour` is its type there: 0 grey, 2 RGB, 3 palette, 4 grey and alpha, 6
// RGB and alpha.
struct PngSamples {
  int colour = 2, bits = 8;
  Bytes row;                             // all rows are the same
  Bytes palette = {}, transparent = {};  // of PLTE and tRNS; empty: none
  std::uint32_t gamma = 0;               // of gAMA, x 100,000; 0: none
};
std::string make_png(PictureSize size, const PngSamples& samples);
// One whose header claims this size, of which there is nothing.
std::string make_png_that_claims(PictureSize size);

// A path, and what stands there.
using Files = std::vector<std::pair<std::string, std::string>>;
std::string make_tar(const Files& files);
// What gzip, bzip2, xz or zstd makes of it.
std::string compressed(const std::string& bytes, const std::string& program);

}  // namespace trireme::testing
