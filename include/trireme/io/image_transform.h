// What happens to a picture between its shard and a model.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "trireme/io/image_shard.h"
#include "trireme/io/picture_size.h"

namespace trireme {

// Every draw is a pure function of the run's seed, the epoch and the sample, so that the pictures
// are the same on every grid and with any number of threads.
struct ImageTransform {
  enum class Crop {
    kCentre,         // the part in the middle, for evaluation
    kRandom,         // a part anywhere, after `padding` black pixels were added on each side
    kRandomResized,  // a part of random area and shape, made as large as the result
  };
  PictureSize size;  // of the result
  Crop crop = Crop::kCentre;
  std::int64_t padding = 0;                            // kRandom
  double least_area = 0.08, most_area = 1.0;           // kRandomResized: shares of the picture
  double least_ratio = 3.0 / 4, most_ratio = 4.0 / 3;  // kRandomResized: width over height
  bool flip = false;                                   // left and right, with probability 1/2
  // A value v of 0 to 1 becomes (v - mean) / divisor.
  PixelStatistics statistics;
};

// Throws ConfigError if the result cannot be made of pictures of this size: it is larger than what
// a crop may take, or a value is outside of its range.
void check_transform(const ImageTransform& transform, PictureSize pictures);

// Applies a transform to pictures of one size. Thread-safe.
class ImageTransformer {
 public:
  // Throws as check_transform.
  ImageTransformer(const ImageTransform& transform, PictureSize pictures, std::uint64_t seed);
  ~ImageTransformer();
  ImageTransformer(const ImageTransformer&) = delete;
  ImageTransformer& operator=(const ImageTransformer&) = delete;

  // `pixels` is (height, width, 3) of the picture, `to` the same of the result. `epoch` and
  // `sample` are what its draws depend on, besides the seed.
  void apply(std::span<const std::uint8_t> pixels, std::uint64_t epoch, std::uint64_t sample,
             std::span<float> to) const;
  const ImageTransform& transform() const;

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
