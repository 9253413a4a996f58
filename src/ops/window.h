// Which pixels of a picture's row or column the windows of a convolution or of pooling see. The
// kernels of the GPU use it too.
#pragma once

#include <cstdint>

namespace trireme::ops {

// The windows along one dimension: window j has `kernel` taps and begins at pixel j * stride -
// padding.
struct Windows {
  std::int64_t in, out, kernel, stride, padding;

  template <class Shape>
  static constexpr Windows vertical(const Shape& s) {
    return {s.height, s.out_height(), s.kernel_height, s.stride, s.padding};
  }
  template <class Shape>
  static constexpr Windows horizontal(const Shape& s) {
    return {s.width, s.out_width(), s.kernel_width, s.stride, s.padding};
  }
  // The pixel that window j sees through a tap; -1 outside of the picture.
  constexpr std::int64_t seen(std::int64_t j, std::int64_t tap) const {
    const std::int64_t at = j * stride - padding + tap;
    return 0 <= at && at < in ? at : -1;
  }
  // The window that sees a pixel through this tap; -1 if none does.
  constexpr std::int64_t seeing(std::int64_t at, std::int64_t tap) const {
    const std::int64_t scaled = at + padding - tap;
    if (scaled < 0) return -1;
    // A GPU takes far longer to divide by 64 bits, which no line of a picture needs.
    const auto position = static_cast<std::uint32_t>(scaled);
    const auto step = static_cast<std::uint32_t>(stride);
    const std::uint32_t window = step == 1 ? position : position / step;
    return window * step != position || window >= out ? -1 : std::int64_t{window};
  }
  // The windows that see a pixel through this tap are those from first_seeing to end_seeing.
  constexpr std::int64_t first_seeing(std::int64_t tap) const {
    return tap >= padding ? 0 : (padding - tap + stride - 1) / stride;
  }
  constexpr std::int64_t end_seeing(std::int64_t tap) const {
    const std::int64_t last = in - 1 + padding - tap;
    if (last < 0) return 0;
    return last / stride + 1 < out ? last / stride + 1 : out;
  }
};

}  // namespace trireme::ops
