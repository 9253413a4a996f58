// One PNG, decoded by libpng.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <vector>

#include <png.h>

#include "trireme/io/picture_size.h"

namespace trireme {

// Samples become 8 bits of red, green and blue, and of alpha where anything may be transparent;
// nothing is done about gamma, profiles and backgrounds. After an error, only problem() may be
// called.
class PngDecoder {
 public:
  // The bytes must outlive it. Throws OutOfMemoryError.
  explicit PngDecoder(std::span<const std::uint8_t> bytes);
  ~PngDecoder();
  PngDecoder(const PngDecoder&) = delete;
  PngDecoder& operator=(const PngDecoder&) = delete;

  bool read_header();  // false: problem()
  PictureSize size() const { return size_; }
  int channels() const { return channels_; }  // 3 or 4
  // Fills (height, width, channels). Returns false with a problem().
  bool read_pixels(std::span<std::uint8_t> pixels);
  const char* problem() const { return problem_.data(); }

 private:
  static void fail(png_structp png, png_const_charp problem);
  static void fetch(png_structp png, png_bytep to, png_size_t count);

  std::span<const std::uint8_t> left_;
  png_structp png_ = nullptr;
  png_infop info_ = nullptr;
  PictureSize size_{};
  int channels_ = 0;
  std::vector<png_bytep> rows_;
  std::array<char, 128> problem_{};
};

}  // namespace trireme
