#include "io/pictures/png_decoder.h"

#include <algorithm>
#include <csetjmp>
#include <cstdio>

#include "trireme/base/error.h"

namespace trireme {

// libpng ends a faulty call by a jump. The functions that it jumps to, and those that it jumps out
// of, hold nothing that would have to be destroyed.

PngDecoder::PngDecoder(std::span<const std::uint8_t> bytes) : left_(bytes) {
  const auto ignored = [](png_structp /*png*/, png_const_charp /*warning*/) {};
  png_ = png_create_read_struct(PNG_LIBPNG_VER_STRING, this, fail, ignored);
  if (png_ != nullptr) info_ = png_create_info_struct(png_);
  if (info_ == nullptr) {
    png_destroy_read_struct(&png_, nullptr, nullptr);
    throw OutOfMemoryError("out of memory for a PNG decoder");
  }
}

PngDecoder::~PngDecoder() {
  png_destroy_read_struct(&png_, &info_, nullptr);
}

void PngDecoder::fail(png_structp png, png_const_charp problem) {
  auto& self = *static_cast<PngDecoder*>(png_get_error_ptr(png));
  std::snprintf(self.problem_.data(), self.problem_.size(), "%s", problem);
  png_longjmp(png, 1);
}

void PngDecoder::fetch(png_structp png, png_bytep to, png_size_t count) {
  auto& self = *static_cast<PngDecoder*>(png_get_io_ptr(png));
  if (count > self.left_.size()) png_error(png, "it ends too early");
  std::copy_n(self.left_.begin(), count, to);
  self.left_ = self.left_.subspan(count);
}

bool PngDecoder::read_header() {
  if (setjmp(png_jmpbuf(png_)) != 0) return false;
  png_set_read_fn(png_, this, fetch);
  png_set_benign_errors(png_, 1);
  png_read_info(png_, info_);
  png_set_expand(png_);  // palettes, fewer than 8 bits, and a transparent colour
  png_set_scale_16(png_);
  png_set_gray_to_rgb(png_);
  png_set_interlace_handling(png_);
  png_read_update_info(png_, info_);
  size_ = {png_get_image_height(png_, info_), png_get_image_width(png_, info_)};
  channels_ = png_get_channels(png_, info_);
  return true;
}

bool PngDecoder::read_pixels(std::span<std::uint8_t> pixels) {
  const auto height = static_cast<std::size_t>(size_.height);
  rows_.resize(height);
  for (std::size_t y = 0; y < height; ++y) rows_[y] = &pixels[y * (pixels.size() / height)];
  if (setjmp(png_jmpbuf(png_)) != 0) return false;
  png_read_image(png_, rows_.data());
  return true;
}

}  // namespace trireme
