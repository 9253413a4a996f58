#include "trireme/io/image_shard.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <xxhash.h>

#include "trireme/base/error.h"
#include "trireme/io/hdf5.h"

#include "io/shards/image_file.h"
#include "io/shards/image_shard_format.h"
#include "io/shards/shard_file.h"
#include "io/shards/token_shard_format.h"

namespace trireme {
namespace {

constexpr std::int64_t kMostShardSide = 1 << 15;  // no product of a picture's sizes overflows
constexpr std::int64_t kMostChecked = std::int64_t{1} << 20;

void demand(const ImageShardInfo& info, bool ok, const std::string& what) {
  if (!ok) throw DataError(fmt::format("{}: {}", info.path, what));
}

std::int64_t image_version_of(const hdf5::File& file) {
  if (!file.exists("/images") || !file.has_attribute("/", "format_version")) {
    throw DataError(
        file.path() +
        (file.exists("/tokens")
             ? ": a token shard, not an image shard (made by `trireme prepare --images`)"
             : ": not an image shard (made by `trireme prepare --images`)"));
  }
  const std::int64_t version = file.integer_attribute("/", "format_version");
  if (version != kImageShardVersion) {
    throw DataError(fmt::format("{}: image shard of format version {}; this program reads {}",
                                file.path(), version, kImageShardVersion));
  }
  return version;
}

void read_pictures(ImageShardInfo& info, const hdf5::Dataset& images) {
  images.check_type(hdf5::ElementType::kU8);
  images.check_stored();
  const hdf5::Extents& extents = images.extents();
  demand(info, extents.size() == 4 && extents[3] == kImageChannels,
         "/images is not N x height x width x 3");
  info.size = {extents[1], extents[2]};
  demand(info,
         info.size.height >= 1 && info.size.width >= 1 && info.size.height <= kMostShardSide &&
             info.size.width <= kMostShardSide,
         fmt::format("pictures of {} x {}", info.size.height, info.size.width));
  demand(
      info, info.images == extents[0],
      fmt::format("the header promises {} pictures, the file holds {}", info.images, extents[0]));
  demand(info, info.images > 0, "there are no pictures");
  info.images_offset = images.contiguous_offset().value_or(-1);
}

// Returns the byte offset of a dataset with one value for each picture.
std::int64_t check_one_each(const ImageShardInfo& info, const hdf5::Dataset& dataset,
                            hdf5::ElementType type) {
  dataset.check_one_dimensional();
  dataset.check_type(type);
  dataset.check_stored();
  demand(info, dataset.elements() == info.images,
         fmt::format("{} holds {} values for {} pictures", dataset.name(), dataset.elements(),
                     info.images));
  return dataset.contiguous_offset().value_or(-1);
}

std::array<double, 3> read_colours(const ImageShardInfo& info, const hdf5::File& file,
                                   const char* name) {
  const hdf5::Dataset dataset = file.dataset(name);
  dataset.check_one_dimensional();
  demand(info, dataset.elements() == kImageChannels,
         fmt::format("{} holds {} values, not {}", name, dataset.elements(), kImageChannels));
  const std::vector<double> values = dataset.read<double>();
  for (const double value : values) {
    demand(info, std::isfinite(value) && value >= 0 && value <= 1,
           fmt::format("{} holds {}, not 0 to 1", name, value));
  }
  return {values[0], values[1], values[2]};
}

}  // namespace

std::uint64_t picture_checksum(std::span<const std::uint8_t> pixels, std::int32_t label) {
  return XXH3_64bits_withSeed(pixels.data(), pixels.size(), static_cast<std::uint32_t>(label));
}

bool is_image_shard(const std::string& path) {
  return open_checked(path).file.exists("/images");
}

ImageShardInfo read_image_shard_info(const std::string& path) {
  const CheckedFile opened = open_checked(path);
  const hdf5::File& file = opened.file;
  ImageShardInfo info;
  info.path = path;
  info.format_version = image_version_of(file);
  info.images = file.integer_attribute("/", "images");
  info.source = file.string_attribute("/", "source");
  info.split = file.string_attribute("/", "split");
  info.checksum = file.string_attribute("/", "checksum");
  read_pictures(info, file.dataset("/images"));
  info.labels_offset = check_one_each(info, file.dataset("/labels"), hdf5::ElementType::kI32);
  info.checksums_offset =
      check_one_each(info, file.dataset("/image_checksums"), hdf5::ElementType::kU64);
  info.classes = file.strings("/classes");
  demand(info, !info.classes.empty(), "there are no classes");
  info.statistics = {read_colours(info, file, "/mean"), read_colours(info, file, "/deviation")};
  info.has_record = opened.record.has_value();
  check_ranges(opened, kImageShardData);
  return info;
}

ImageShardInfo verify_image_shard(const std::string& path) {
  ImageShardInfo info = read_image_shard_info(path);
  ImageFile file(info);
  std::vector<std::uint8_t> pixels(static_cast<std::size_t>(info.picture_bytes()));
  for (std::int64_t i = 0; i < info.images; ++i) file.read(i, pixels);
  const hdf5::Dataset checksums = hdf5::File::open(path).dataset("/image_checksums");
  RunningChecksum whole;
  std::vector<std::uint64_t> values;
  for (std::int64_t at = 0; at < info.images; at += kMostChecked) {
    values.resize(static_cast<std::size_t>(std::min(kMostChecked, info.images - at)));
    checksums.read(at, std::span(values));
    whole.add(values.data(), values.size() * sizeof(std::uint64_t));
  }
  demand(info, whole.text() == info.checksum,
         fmt::format("the pictures are damaged: their checksum is {}, the header says {}",
                     whole.text(), info.checksum));
  return info;
}

}  // namespace trireme
