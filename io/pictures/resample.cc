#include "io/pictures/resample.h"

#include <algorithm>
#include <cmath>
#include <vector>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr int kWeightBits = 22;  // the sum of all weights times 255 fits into 31 bits
constexpr std::int32_t kHalf = 1 << (kWeightBits - 1);
constexpr std::int64_t kChannels = 3;

// The pixels along one axis that make the pixels of the result, and their weights.
struct Taps {
  struct Range {
    std::int64_t first, count;  // pixels
    std::size_t weight;         // index of the first one's weight
  };
  std::vector<Range> ranges;  // one for each pixel of the result
  std::vector<std::int32_t> weights;

  std::span<const std::int32_t> weights_of(const Range& range) const {
    return std::span(weights).subspan(range.weight, static_cast<std::size_t>(range.count));
  }
};

Taps taps_of(double begin, double length, std::int64_t pixels, std::int64_t count) {
  const double scale = length / static_cast<double>(count);
  const double reach = std::max(scale, 1.0);
  const auto least = static_cast<std::int64_t>(std::floor(begin));
  const auto most = std::min(pixels, static_cast<std::int64_t>(std::ceil(begin + length)));
  Taps taps;
  taps.ranges.reserve(static_cast<std::size_t>(count));
  taps.weights.reserve(static_cast<std::size_t>(count) *
                       static_cast<std::size_t>(2 * std::ceil(reach) + 1));
  std::vector<double> shares;
  for (std::int64_t i = 0; i < count; ++i) {
    const double centre = begin + (static_cast<double>(i) + 0.5) * scale;
    const auto first =
        std::clamp(static_cast<std::int64_t>(std::floor(centre - reach)), least, most - 1);
    const auto end =
        std::clamp(static_cast<std::int64_t>(std::ceil(centre + reach)), first + 1, most);
    double sum = 0;
    shares.clear();
    for (std::int64_t k = first; k < end; ++k) {
      const double distance = std::abs(static_cast<double>(k) + 0.5 - centre) / reach;
      shares.push_back(std::max(0.0, 1.0 - distance));
      sum += shares.back();
    }
    taps.ranges.push_back({first, end - first, taps.weights.size()});
    for (const double share : shares) {
      // This rounds as std::lround does, but faster: no share is negative.
      taps.weights.push_back(
          static_cast<std::int32_t>(share / sum * double{1 << kWeightBits} + 0.5));
    }
  }
  return taps;
}

std::uint8_t rounded(std::int32_t sum) {
  return static_cast<std::uint8_t>(std::clamp(sum >> kWeightBits, 0, 255));
}

// One row of the picture, made as wide as the result.
void resample_row(const std::uint8_t* row, const Taps& columns, std::uint8_t* to) {
  for (const Taps::Range& range : columns.ranges) {
    std::int32_t red = kHalf, green = kHalf, blue = kHalf;
    const std::uint8_t* pixel = row + kChannels * range.first;
    for (const std::int32_t weight : columns.weights_of(range)) {
      red += weight * pixel[0];
      green += weight * pixel[1];
      blue += weight * pixel[2];
      pixel += kChannels;
    }
    to[0] = rounded(red);
    to[1] = rounded(green);
    to[2] = rounded(blue);
    to += kChannels;
  }
}

}  // namespace

PictureWindow central_window(PictureSize picture, PictureSize shape) {
  const auto height = static_cast<double>(picture.height);
  const auto width = static_cast<double>(picture.width);
  PictureWindow window{0, 0, height, width};
  if (picture.height * shape.width > picture.width * shape.height) {
    window.height = width * static_cast<double>(shape.height) / static_cast<double>(shape.width);
  } else {
    window.width = height * static_cast<double>(shape.width) / static_cast<double>(shape.height);
  }
  window.top = (height - window.height) / 2;
  window.left = (width - window.width) / 2;
  return window;
}

void resample(std::span<const std::uint8_t> pixels, PictureSize size, const PictureWindow& window,
              PictureSize to_size, std::span<std::uint8_t> to) {
  TRIREME_CHECK(std::ssize(pixels) == size.height * size.width * kChannels &&
                    std::ssize(to) == to_size.height * to_size.width * kChannels,
                "pixels of another size");
  TRIREME_CHECK(window.top >= 0 && window.left >= 0 && window.height > 0 && window.width > 0 &&
                    window.top < static_cast<double>(size.height) &&
                    window.left < static_cast<double>(size.width),
                "a window outside of its picture");
  const Taps rows = taps_of(window.top, window.height, size.height, to_size.height);
  const Taps columns = taps_of(window.left, window.width, size.width, to_size.width);
  const std::int64_t first = rows.ranges.front().first;
  const std::int64_t end = rows.ranges.back().first + rows.ranges.back().count;
  const std::int64_t bytes = to_size.width * kChannels;
  std::vector<std::uint8_t> narrow(static_cast<std::size_t>((end - first) * bytes));
  for (std::int64_t y = first; y < end; ++y) {
    resample_row(pixels.data() + y * size.width * kChannels, columns,
                 narrow.data() + (y - first) * bytes);
  }
  std::vector<std::int32_t> sums(static_cast<std::size_t>(bytes));
  std::uint8_t* row = to.data();
  for (const Taps::Range& range : rows.ranges) {
    std::fill(sums.begin(), sums.end(), kHalf);
    const std::uint8_t* from = narrow.data() + (range.first - first) * bytes;
    for (const std::int32_t weight : rows.weights_of(range)) {
      for (std::size_t i = 0; i < sums.size(); ++i) sums[i] += weight * from[i];
      from += bytes;
    }
    row = std::transform(sums.begin(), sums.end(), row, rounded);
  }
}

}  // namespace trireme
