#include <algorithm>
#include <cmath>
#include <cstring>

#include "trireme/base/error.h"
#include "trireme/io/hdf5.h"
#include "trireme/io/image_shard.h"

#include "io/prepare/ordered_work.h"
#include "io/shards/image_shard_format.h"
#include "io/shards/shard_file.h"
#include "io/shards/token_shard_format.h"

namespace trireme {
namespace {

constexpr std::int64_t kPartBytes = std::int64_t{4} << 20;

// Sums over pixels, by colour: whole numbers, so that parts may be summed in any order.
struct PixelSums {
  std::array<std::uint64_t, 3> values{}, squares{};

  void operator+=(const PixelSums& other) {
    for (std::size_t c = 0; c < 3; ++c) {
      values[c] += other.values[c];
      squares[c] += other.squares[c];
    }
  }
};

// Some neighbouring pictures on their way into the file.
struct ImagePart {
  std::int64_t first = 0;
  std::vector<std::uint8_t> pixels;
  std::vector<std::int32_t> labels;
  std::vector<std::uint64_t> checksums;
  PixelSums sums;
};
using ImagePartPtr = std::shared_ptr<ImagePart>;

PixelSums sums_of(std::span<const std::uint8_t> pixels) {
  PixelSums total;
  constexpr std::size_t kBlock = 3 * 16384;  // the squares of so many values fit into 32 bits
  for (std::size_t at = 0; at < pixels.size(); at += kBlock) {
    const auto block = pixels.subspan(at, std::min(kBlock, pixels.size() - at));
    std::array<std::uint32_t, 3> values{}, squares{};
    for (std::size_t i = 0; i + 3 <= block.size(); i += 3) {
      for (std::size_t c = 0; c < 3; ++c) {
        const std::uint32_t value = block[i + c];
        values[c] += value;
        squares[c] += value * value;
      }
    }
    for (std::size_t c = 0; c < 3; ++c) {
      total.values[c] += values[c];
      total.squares[c] += squares[c];
    }
  }
  return total;
}

PixelStatistics statistics_of(const PixelSums& sums, std::int64_t pixels) {
  PixelStatistics statistics;
  const auto count = static_cast<double>(pixels);
  for (std::size_t c = 0; c < 3; ++c) {
    const double mean = static_cast<double>(sums.values[c]) / count;
    const double variance = static_cast<double>(sums.squares[c]) / count - mean * mean;
    statistics.mean[c] = mean / 255;
    statistics.deviation[c] = std::sqrt(std::max(variance, 0.0)) / 255;
  }
  return statistics;
}

ImagePartPtr summed(ImagePartPtr part) {
  const std::size_t bytes = part->pixels.size() / part->labels.size();
  for (std::size_t i = 0; i < part->labels.size(); ++i) {
    part->checksums.push_back(
        picture_checksum(std::span(part->pixels).subspan(i * bytes, bytes), part->labels[i]));
  }
  part->sums = sums_of(part->pixels);
  return part;
}

}  // namespace

class ImageShardWriter::Impl {
 public:
  Impl(std::string path, const ImageShardContents& contents) : file_(std::move(path)) {
    TRIREME_CHECK(contents.images > 0 && contents.size.height > 0 && contents.size.width > 0,
                  "an image shard of nothing");
    file_.write([&](hdf5::File& file) { write(file, contents); });
  }

  void finish() { file_.finish(kImageShardData); }
  ImageShardInfo commit() {
    finish();
    file_.commit();
    return read_image_shard_info(file_.path());
  }
  const PixelStatistics& statistics() const { return statistics_; }

 private:
  void write(hdf5::File& file, const ImageShardContents& contents) {
    using hdf5::ElementType;
    const auto [height, width] = contents.size;
    images_ = file.create_dataset("/images", ElementType::kU8,
                                  {contents.images, height, width, kImageChannels});
    labels_ = file.create_dataset("/labels", ElementType::kI32, {contents.images});
    checksums_ = file.create_dataset("/image_checksums", ElementType::kU64, {contents.images});
    copy_pictures(contents);
    statistics_ = contents.statistics.value_or(
        statistics_of(sums_, contents.images * contents.size.height * contents.size.width));
    file.create_dataset("/mean", ElementType::kF64, {kImageChannels})
        .write(0, std::span<const double>(statistics_.mean));
    file.create_dataset("/deviation", ElementType::kF64, {kImageChannels})
        .write(0, std::span<const double>(statistics_.deviation));
    file.create_strings("/classes", contents.classes);
    file.set_attribute("/", "format_version", kImageShardVersion);
    file.set_attribute("/", "images", contents.images);
    set_text(file, "/", "source", contents.source);
    set_text(file, "/", "split", contents.split);
    set_text(file, "/", "checksum", checksum_.text());
    images_ = labels_ = checksums_ = std::nullopt;
  }

  void copy_pictures(const ImageShardContents& contents) {
    const std::int64_t bytes = contents.size.height * contents.size.width * kImageChannels;
    const std::int64_t each = std::max<std::int64_t>(1, kPartBytes / bytes);
    OrderedWork<ImagePartPtr, ImagePartPtr> work(
        contents.threads, summed, [&](ImagePartPtr&& part) { store(*part, contents.size); });
    for (std::int64_t first = 0; first < contents.images; first += each) {
      auto part = std::make_shared<ImagePart>();
      part->first = first;
      const std::int64_t count = std::min(each, contents.images - first);
      part->pixels.resize(static_cast<std::size_t>(count * bytes));
      for (std::int64_t i = 0; i < count; ++i) {
        part->labels.push_back(contents.fetch(
            first + i,
            std::span(part->pixels)
                .subspan(static_cast<std::size_t>(i * bytes), static_cast<std::size_t>(bytes))));
      }
      work.add(std::move(part));
    }
    work.finish();
  }

  void store(const ImagePart& part, PictureSize size) {
    const auto count = std::ssize(part.labels);
    images_->write_raw({{{part.first, 0, 0, 0}, {count, size.height, size.width, kImageChannels}}},
                       part.pixels.data(), hdf5::Transfer::kIndependent);
    labels_->write(part.first, std::span<const std::int32_t>(part.labels));
    checksums_->write(part.first, std::span<const std::uint64_t>(part.checksums));
    checksum_.add(part.checksums.data(), part.checksums.size() * sizeof(std::uint64_t));
    sums_ += part.sums;
  }

  ShardFile file_;
  std::optional<hdf5::Dataset> images_, labels_, checksums_;
  RunningChecksum checksum_;  // of /image_checksums
  PixelSums sums_;
  PixelStatistics statistics_;
};

ImageShardWriter::ImageShardWriter(std::string path, const ImageShardContents& contents)
    : impl_(std::make_unique<Impl>(std::move(path), contents)) {}

ImageShardWriter::~ImageShardWriter() = default;

const PixelStatistics& ImageShardWriter::statistics() const {
  return impl_->statistics();
}

void ImageShardWriter::finish() {
  impl_->finish();
}

ImageShardInfo ImageShardWriter::commit() {
  return impl_->commit();
}

}  // namespace trireme
