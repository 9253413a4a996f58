#include "trireme/io/image_transform.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/philox.h"

#include "io/pictures/resample.h"

namespace trireme {
namespace {

constexpr std::int64_t kMostPadding = 1 << 12;
constexpr int kTries = 10;  // of a random area and shape before the middle is taken
constexpr std::int64_t kColours = 3;

// The draws of one picture, one after the other.
class PictureDraws {
 public:
  PictureDraws(std::uint64_t key, std::uint64_t epoch, std::uint64_t sample)
      : key_(key_of(key, epoch)), sample_(sample) {}

  // 0 to count - 1.
  std::int64_t below(std::int64_t count) {
    const auto wide = std::uint64_t{next()} * static_cast<std::uint64_t>(count);
    return static_cast<std::int64_t>(wide >> 32);
  }
  double between(double least, double most) {
    return least + (most - least) * (static_cast<double>(next()) * 0x1p-32);
  }

 private:
  static Philox4 counter(std::uint64_t number, std::uint32_t block) {
    return {static_cast<std::uint32_t>(number), static_cast<std::uint32_t>(number >> 32), block, 0};
  }
  static std::uint64_t key_of(std::uint64_t key, std::uint64_t epoch) {
    const Philox4 draw = philox4x32(counter(epoch, 0), key);
    return (std::uint64_t{draw[1]} << 32) | draw[0];
  }
  std::uint32_t next() {
    if (used_ == draw_.size()) {
      draw_ = philox4x32(counter(sample_, block_++), key_);
      used_ = 0;
    }
    return draw_[used_++];
  }

  std::uint64_t key_, sample_;
  std::uint32_t block_ = 0;
  Philox4 draw_{};
  std::size_t used_ = 4;
};

// Where a part begins; outside of the picture where that was padded.
struct Corner {
  std::int64_t top = 0, left = 0;
};

// The window of an area and a shape drawn at random.
PictureWindow random_window(const ImageTransform& transform, PictureSize picture,
                            PictureDraws& draws) {
  const auto area = static_cast<double>(picture.height * picture.width);
  for (int i = 0; i < kTries; ++i) {
    const double part = area * draws.between(transform.least_area, transform.most_area);
    const double ratio =
        std::exp(draws.between(std::log(transform.least_ratio), std::log(transform.most_ratio)));
    const auto width = static_cast<std::int64_t>(std::lround(std::sqrt(part * ratio)));
    const auto height = static_cast<std::int64_t>(std::lround(std::sqrt(part / ratio)));
    if (width < 1 || height < 1 || width > picture.width || height > picture.height) continue;
    const std::int64_t top = draws.below(picture.height - height + 1);
    const std::int64_t left = draws.below(picture.width - width + 1);
    return {static_cast<double>(top), static_cast<double>(left), static_cast<double>(height),
            static_cast<double>(width)};
  }
  return central_window(picture, transform.size);
}

[[noreturn]] void refuse_transform(PictureSize pictures, PictureSize size, std::string_view what) {
  throw ConfigError(
      fmt::format("pictures of {} x {} cannot give parts of {} x {}{}; prepare them with a larger "
                  "--size, or give the model smaller ones (--model.image)",
                  pictures.height, pictures.width, size.height, size.width, what));
}

}  // namespace

void check_transform(const ImageTransform& transform, PictureSize pictures) {
  const PictureSize size = transform.size;
  if (size.height < 1 || size.width < 1) {
    throw ConfigError(fmt::format("parts of {} x {} pixels", size.height, size.width));
  }
  if (transform.padding < 0 || transform.padding > kMostPadding) {
    throw ConfigError(
        fmt::format("padding of {} pixels; expected 0 to {}", transform.padding, kMostPadding));
  }
  if (transform.crop == ImageTransform::Crop::kRandomResized) {
    if (!(transform.least_area > 0 && transform.least_area <= transform.most_area &&
          transform.most_area <= 1)) {
      throw ConfigError(
          fmt::format("parts of {} to {} of a picture; expected 0 < least <= most <= 1",
                      transform.least_area, transform.most_area));
    }
    if (!(transform.least_ratio > 0 && transform.least_ratio <= transform.most_ratio &&
          std::isfinite(transform.most_ratio))) {
      throw ConfigError(
          fmt::format("parts {} to {} times as wide as high; expected 0 < least <= most",
                      transform.least_ratio, transform.most_ratio));
    }
    return;
  }
  const bool random = transform.crop == ImageTransform::Crop::kRandom;
  const std::int64_t more = random ? 2 * transform.padding : 0;
  if (size.height > pictures.height + more || size.width > pictures.width + more) {
    refuse_transform(pictures, size,
                     more > 0 ? fmt::format(" with {} pixels around them", transform.padding) : "");
  }
}

class ImageTransformer::Impl {
 public:
  Impl(const ImageTransform& transform, PictureSize pictures, std::uint64_t seed)
      : transform_(transform), pictures_(pictures), key_(philox_key(seed, "data.augmentation")) {
    check_transform(transform, pictures);
    for (std::size_t c = 0; c < 3; ++c) {
      const double divisor = transform.statistics.divisor(c);
      for (std::size_t v = 0; v < 256; ++v) {
        const double value = static_cast<double>(v) / 255 - transform.statistics.mean[c];
        normal_[c][v] = static_cast<float>(value / divisor);
      }
    }
  }

  void apply(std::span<const std::uint8_t> pixels, std::uint64_t epoch, std::uint64_t sample,
             std::span<float> to) const {
    TRIREME_CHECK(std::ssize(pixels) == pictures_.height * pictures_.width * kColours &&
                      std::ssize(to) == transform_.size.height * transform_.size.width * kColours,
                  "a picture or a result of another size");
    PictureDraws draws(key_, epoch, sample);
    const bool flipped = transform_.flip && draws.below(2) == 1;
    if (transform_.crop != ImageTransform::Crop::kRandomResized) {
      copy(pixels, pictures_, corner(draws), flipped, to);
      return;
    }
    std::vector<std::uint8_t> part(to.size());
    resample(pixels, pictures_, random_window(transform_, pictures_, draws), transform_.size, part);
    copy(part, transform_.size, {}, flipped, to);
  }
  const ImageTransform& transform() const { return transform_; }

 private:
  Corner corner(PictureDraws& draws) const {
    const std::int64_t rows = pictures_.height - transform_.size.height;
    const std::int64_t columns = pictures_.width - transform_.size.width;
    if (transform_.crop == ImageTransform::Crop::kCentre) return {rows / 2, columns / 2};
    const std::int64_t padding = transform_.padding;
    const std::int64_t top = draws.below(rows + 2 * padding + 1);
    return {top - padding, draws.below(columns + 2 * padding + 1) - padding};
  }

  // Normalises the part of a picture that begins at `corner`.
  void copy(std::span<const std::uint8_t> pixels, PictureSize size, Corner corner, bool flipped,
            std::span<float> to) const {
    const auto [height, width] = transform_.size;
    for (std::int64_t y = 0; y < height; ++y) {
      float* row = to.data() + y * width * kColours;
      const std::int64_t from = y + corner.top;
      const bool inside = from >= 0 && from < size.height;
      // Columns [first, end) of the result lie in the picture.
      const std::int64_t first = inside ? std::clamp<std::int64_t>(-corner.left, 0, width) : width;
      const std::int64_t end = std::clamp<std::int64_t>(size.width - corner.left, first, width);
      fill_black(row, 0, first);
      for (std::int64_t x = first; x < end; ++x) {
        const std::uint8_t* pixel =
            pixels.data() + (from * size.width + corner.left + x) * kColours;
        row[kColours * x] = normal_[0][pixel[0]];
        row[kColours * x + 1] = normal_[1][pixel[1]];
        row[kColours * x + 2] = normal_[2][pixel[2]];
      }
      fill_black(row, end, width);
      if (flipped) mirror(row, width);
    }
  }

  void fill_black(float* row, std::int64_t begin, std::int64_t end) const {
    for (std::int64_t x = begin; x < end; ++x) {
      for (std::size_t c = 0; c < 3; ++c) {
        row[kColours * x + static_cast<std::int64_t>(c)] = normal_[c][0];
      }
    }
  }
  static void mirror(float* row, std::int64_t width) {
    for (std::int64_t left = 0, right = width - 1; left < right; ++left, --right) {
      std::swap_ranges(row + kColours * left, row + kColours * (left + 1), row + kColours * right);
    }
  }

  ImageTransform transform_;
  PictureSize pictures_;
  std::uint64_t key_;
  std::array<std::array<float, 256>, 3> normal_{};  // by colour and value
};

ImageTransformer::ImageTransformer(const ImageTransform& transform, PictureSize pictures,
                                   std::uint64_t seed)
    : impl_(std::make_unique<Impl>(transform, pictures, seed)) {}

ImageTransformer::~ImageTransformer() = default;

void ImageTransformer::apply(std::span<const std::uint8_t> pixels, std::uint64_t epoch,
                             std::uint64_t sample, std::span<float> to) const {
  impl_->apply(pixels, epoch, sample, to);
}

const ImageTransform& ImageTransformer::transform() const {
  return impl_->transform();
}

}  // namespace trireme
