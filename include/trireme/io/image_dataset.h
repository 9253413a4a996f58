// Image shards as the samples of a training run or an evaluation, as dataset.h for text.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "trireme/io/dataset.h"
#include "trireme/io/image_shard.h"
#include "trireme/io/image_transform.h"

namespace trireme {

struct ImageDatasetOptions {
  // Shard files and folders of them. Without any weight the shards form one dataset; otherwise each
  // path is a part of a mixture.
  std::vector<WeightedPath> data;
  // Only the shards of this split are taken from a folder; empty: all shards.
  std::string split = "train";
  std::uint64_t seed = 1;  // for the shuffled order, and for the draws of transforms
  // kShuffled: each epoch visits every picture of a part once, in an order of its own. kSequential:
  // the pictures of the shards follow each other.
  SampleOrder order = SampleOrder::kShuffled;
};

// What is read of pictures.
struct ImageParts {
  bool pixels = true, labels = true;
};

// Parts that were not read are empty.
struct ImageBatch {
  std::vector<std::uint64_t> samples;  // (n)
  std::vector<float> pixels;           // (n, height, width, 3)
  std::vector<std::int32_t> labels;    // (n)
};

// Thread-safe.
class ImageDataset {
 public:
  // Collective over comm. Only rank 0 reads the headers. Throws the same error on every rank:
  // DataError if a file is missing, foreign or damaged, or differs from the others in size or
  // classes; ConfigError for an empty list, or a weight outside 1e-6 to 1e6.
  static std::shared_ptr<const ImageDataset> open(const ImageDatasetOptions& options,
                                                  Communicator& comm);
  // The same for a single process.
  static std::shared_ptr<const ImageDataset> open(const ImageDatasetOptions& options);
  ~ImageDataset();

  // The number of pictures in one pass over all shards, whatever the weights. Sequential sample
  // indices are below it.
  std::uint64_t samples() const;
  PictureSize size() const;
  const std::vector<std::string>& classes() const;
  // The statistics of all pictures to train on: the means of those in the shards' headers, weighted
  // by the number of pictures.
  PixelStatistics statistics() const;
  const std::vector<ImageShardInfo>& shards() const;
  // Describes the data without their paths. Each part of the mixture has one line: its weight,
  // shards, pictures, and a checksum of the counts and checksums in the shards' headers.
  std::string contents() const;
  // Where a sample is: the shard's index and the picture's number in that shard.
  struct Place {
    std::size_t shard;
    std::uint64_t picture;
    bool operator==(const Place&) const = default;
  };
  Place place_of(std::uint64_t sample) const;

  // Throws ConfigError as check_transform.
  std::shared_ptr<const ImageTransformer> transformer(const ImageTransform& transform) const;
  // Reads only these samples. `pixels` is (n, height, width, 3) of the transform's size, `labels`
  // is (n); either may be empty: then it is not made. (Labels alone still take the bytes of their
  // pictures, which their checksums cover too.) Throws DataError if a file cannot be read any more,
  // or does not match its checksums.
  void read(std::span<const std::uint64_t> samples, const ImageTransformer& transformer,
            std::span<float> pixels, std::span<std::int32_t> labels) const;
  ImageBatch read(std::span<const std::uint64_t> samples, const ImageTransformer& transformer,
                  const ImageParts& parts = {}) const;

  class Impl;

 private:
  explicit ImageDataset(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
