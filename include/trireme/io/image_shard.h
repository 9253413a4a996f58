// Image shards. Each is one HDF5 file of labelled pictures of one size (io/DATA_SHARDS.md, "Image
// shards").
#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "trireme/io/picture_size.h"

namespace trireme {

// The mean and the deviation of red, green and blue, where a pixel's values are 0 to 1.
struct PixelStatistics {
  std::array<double, 3> mean{};
  std::array<double, 3> deviation{};
  bool operator==(const PixelStatistics&) const = default;

  // What values less their mean are divided by: the deviation, but 1 for a constant colour. Where
  // other programs have made the shards, its deviation may be rounding; one pixel in 150,000 that
  // is off by the least step gives as much.
  static constexpr double kLeastDeviation = 1e-5;
  double divisor(std::size_t colour) const {
    return deviation.at(colour) >= kLeastDeviation ? deviation.at(colour) : 1.0;
  }
};

// The content of a shard's header, checked against the file.
struct ImageShardInfo {
  std::string path;
  std::int64_t format_version = 0;
  bool has_record = false;  // the header was checked before HDF5 saw it
  std::int64_t images = 0;
  PictureSize size;
  std::vector<std::string> classes;  // a label is an index into these
  PixelStatistics statistics;        // of the pictures to train on
  // Byte offsets in the file; -1: not contiguous.
  std::int64_t images_offset = -1, labels_offset = -1, checksums_offset = -1;
  std::string source;    // where the pictures came from
  std::string split;     // "train", "validation", or what another writer calls it
  std::string checksum;  // "xxh64:0123456789abcdef", of the bytes of /image_checksums

  std::int64_t picture_bytes() const { return size.height * size.width * 3; }
};

// Whether the file at a path is an image shard rather than another HDF5 file. Throws DataError if
// it is missing, foreign or damaged.
bool is_image_shard(const std::string& path);

// Reads and checks the header. It does not read the pictures: ImageDataset checks those that it
// reads, and verify_image_shard checks all. Throws DataError if the file is missing, foreign,
// damaged, truncated or contradicts itself.
ImageShardInfo read_image_shard_info(const std::string& path);

// Reads and checks everything. Throws a DataError that says what is damaged, and where.
ImageShardInfo verify_image_shard(const std::string& path);

struct ImageShardContents {
  PictureSize size;
  std::int64_t images = 0;
  std::vector<std::string> classes;
  std::string source, split;
  // Writes picture i as (height, width, 3) to `pixels` and returns its label. Called from the
  // writing thread, with rising i.
  std::function<std::int32_t(std::int64_t i, std::span<std::uint8_t> pixels)> fetch;
  std::optional<PixelStatistics> statistics;  // none: those of these pictures
  int threads = 1;                            // for checksums and statistics
};

// Writes one shard. There is no file at `path` until commit. The file depends on the contents, not
// on the number of threads. Throws RunFolderError if the folder is unwritable or full.
class ImageShardWriter {
 public:
  // Writes all of it as `path`.partial.
  ImageShardWriter(std::string path, const ImageShardContents& contents);
  ~ImageShardWriter();  // removes what was not committed
  ImageShardWriter(const ImageShardWriter&) = delete;
  ImageShardWriter& operator=(const ImageShardWriter&) = delete;

  const PixelStatistics& statistics() const;
  // Syncs the shard to disk as `path`.partial, for a caller that renames it.
  void finish();
  // The same, and renames it to its path.
  ImageShardInfo commit();

 private:
  class Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace trireme
