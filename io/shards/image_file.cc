#include "io/shards/image_file.h"

#include <algorithm>
#include <utility>

#include <fcntl.h>
#include <fmt/format.h>

#include "trireme/base/error.h"

#include "io/shards/image_shard_format.h"

namespace trireme {

ImageFile::ImageFile(const ImageShardInfo& info)
    : path_(info.path),
      images_(info.images),
      classes_(std::ssize(info.classes)),
      size_(info.size),
      images_offset_(info.images_offset),
      labels_offset_(info.labels_offset),
      checksums_offset_(info.checksums_offset) {
  if (std::max({images_offset_, labels_offset_, checksums_offset_}) < 0) return;
  file_.emplace(path_, O_RDONLY, ExitStatus::kData);
}

template <class T>
void ImageFile::read_dataset(const char* name, const hdf5::Extents& of_one, std::int64_t offset,
                             std::optional<hdf5::Dataset>& dataset, std::int64_t i,
                             std::span<T> values) {
  if (offset < 0) {
    const std::lock_guard lock(mutex_);
    if (!dataset) {
      // The file may be another one than when its header was read.
      hdf5::Dataset opened = hdf5::File::open(path_).dataset(name);
      hdf5::Extents expected = of_one;
      expected.insert(expected.begin(), images_);
      if (opened.extents() != expected || opened.type() != hdf5::element_type_of<T>()) {
        throw DataError(fmt::format("{}: {} has changed since the shard was opened", path_, name));
      }
      dataset = std::move(opened);
    }
    Box box{hdf5::Extents(of_one.size() + 1, 0), of_one};
    box.start[0] = i;
    box.count.insert(box.count.begin(), 1);
    dataset->read_raw(box, values.data());
    return;
  }
  file_->read(offset + i * static_cast<std::int64_t>(values.size_bytes()), values.data(),
              values.size_bytes());
}

std::int32_t ImageFile::read(std::int64_t i, std::span<std::uint8_t> pixels) {
  TRIREME_CHECK(i >= 0 && i < images_, path_ + ": read past the end");
  std::int32_t label = 0;
  std::uint64_t expected = 0;
  read_dataset("/images", {size_.height, size_.width, 3}, images_offset_, pixels_, i, pixels);
  read_dataset("/labels", {}, labels_offset_, labels_, i, std::span(&label, 1));
  read_dataset("/image_checksums", {}, checksums_offset_, checksums_, i, std::span(&expected, 1));
  if (picture_checksum(pixels, label) != expected) {
    throw DataError(
        fmt::format("{}: damaged: picture {} or its label does not match its checksum", path_, i));
  }
  if (label < 0 || label >= classes_) {
    throw DataError(fmt::format("{}: the label of picture {} is {}, but there are {} classes",
                                path_, i, label, classes_));
  }
  return label;
}

}  // namespace trireme
