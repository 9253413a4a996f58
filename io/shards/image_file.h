// Random access to the pictures of shards.
#pragma once

#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <vector>

#include "trireme/io/hdf5.h"
#include "trireme/io/image_shard.h"

#include "io/files/posix_file.h"

namespace trireme {

// An open shard. Thread-safe.
class ImageFile {
 public:
  explicit ImageFile(const ImageShardInfo& info);

  // Reads picture i into `pixels` and returns its label. Throws DataError if the file is gone or
  // truncated, if the picture or the label does not match its checksum, or if there is no such
  // class.
  std::int32_t read(std::int64_t i, std::span<std::uint8_t> pixels);

 private:
  // `of_one` are the extents of one picture's elements. The offset is -1 if the dataset is not
  // contiguous.
  template <class T>
  void read_dataset(const char* name, const hdf5::Extents& of_one, std::int64_t offset,
                    std::optional<hdf5::Dataset>& dataset, std::int64_t i, std::span<T> values);

  std::string path_;
  std::int64_t images_, classes_;
  PictureSize size_;
  std::int64_t images_offset_, labels_offset_, checksums_offset_;
  std::optional<PosixFile> file_;                             // contiguous datasets: pread
  std::mutex mutex_;                                          // guards what follows
  std::optional<hdf5::Dataset> pixels_, labels_, checksums_;  // chunked ones: HDF5
};

}  // namespace trireme
