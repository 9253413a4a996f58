#include "trireme/io/image_dataset.h"

#include <algorithm>
#include <cmath>
#include <utility>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/comm/communicator.h"

#include "io/files/open_files.h"
#include "io/shards/image_file.h"
#include "io/shards/sample_places.h"
#include "io/shards/shard_headers.h"

namespace trireme {

namespace {

constexpr double kRoundedShare = 1e-9;  // differences below this share of their terms are rounding

}  // namespace

class ImageDataset::Impl {
 public:
  Impl(ShardHeaders<ImageShardInfo> headers, const ImageDatasetOptions& options)
      : headers_(std::move(headers)),
        seed_(options.seed),
        places_(options.order, headers_.parts, pictures_by_shard(), options.seed),
        files_(headers_.shards) {}

  // Returns the label. `pixels` may be empty.
  std::int32_t read(std::uint64_t sample, std::span<std::uint8_t> picture,
                    const ImageTransformer& transformer, std::span<float> pixels) const {
    const SamplePlaces::Place place = places_.place_of(sample);
    const std::int32_t label =
        files_.use(place.shard)->read(static_cast<std::int64_t>(place.sample), picture);
    if (!pixels.empty()) transformer.apply(picture, place.visit, place.of_part, pixels);
    return label;
  }

  PixelStatistics statistics() const {
    const PixelStatistics& first = headers_.shards.front().statistics;
    PixelStatistics all;
    double total = 0;
    for (const ImageShardInfo& info : headers_.shards) total += static_cast<double>(info.images);
    for (std::size_t c = 0; c < 3; ++c) {
      double squares = 0, within = 0, between = 0;
      for (const ImageShardInfo& info : headers_.shards) {
        const double share = static_cast<double>(info.images) / total;
        const double mean = info.statistics.mean[c], deviation = info.statistics.deviation[c];
        all.mean[c] += share * mean;
        squares += share * (deviation * deviation + mean * mean);
        within += share * deviation * deviation;
        between += share * (mean - first.mean[c]) * (mean - first.mean[c]);
      }
      double variance = squares - all.mean[c] * all.mean[c];
      // For a colour that hardly changes, this is the rounding of its terms. What follows is exact
      // where shards agree: a colour that never changes has a deviation of 0.
      if (variance < kRoundedShare * squares) {
        const double shift = all.mean[c] - first.mean[c];
        variance = within + (between > 0 ? std::max(0.0, between - shift * shift) : 0);
      }
      all.deviation[c] = std::sqrt(variance);
    }
    // One shard needs no sums, so it is returned without the rounding of those above.
    return headers_.shards.size() == 1 ? first : all;
  }

  const ShardHeaders<ImageShardInfo>& headers() const { return headers_; }
  const ImageShardInfo& first() const { return headers_.shards.front(); }
  const SamplePlaces& places() const { return places_; }
  std::uint64_t seed() const { return seed_; }

 private:
  std::vector<std::uint64_t> pictures_by_shard() const {
    std::vector<std::uint64_t> counts;
    for (const ImageShardInfo& info : headers_.shards) {
      counts.push_back(static_cast<std::uint64_t>(info.images));
    }
    return counts;
  }

  ShardHeaders<ImageShardInfo> headers_;
  std::uint64_t seed_;
  SamplePlaces places_;
  mutable OpenFiles<ImageShardInfo, ImageFile> files_;
};

ImageDataset::ImageDataset(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ImageDataset::~ImageDataset() = default;

std::shared_ptr<const ImageDataset> ImageDataset::open(const ImageDatasetOptions& options) {
  return std::shared_ptr<const ImageDataset>(new ImageDataset(std::make_unique<Impl>(
      read_shard_headers<ImageShardInfo>(options.data, options.split), options)));
}

std::shared_ptr<const ImageDataset> ImageDataset::open(const ImageDatasetOptions& options,
                                                       Communicator& comm) {
  const std::string packed = comm.broadcast_text(
      comm.rank() == 0 ? pack_shard_headers<ImageShardInfo>(options.data, options.split) : "");
  return std::shared_ptr<const ImageDataset>(new ImageDataset(
      std::make_unique<Impl>(unpack_shard_headers<ImageShardInfo>(packed), options)));
}

std::uint64_t ImageDataset::samples() const {
  return impl_->places().samples();
}
PictureSize ImageDataset::size() const {
  return impl_->first().size;
}
const std::vector<std::string>& ImageDataset::classes() const {
  return impl_->first().classes;
}
PixelStatistics ImageDataset::statistics() const {
  return impl_->statistics();
}
const std::vector<ImageShardInfo>& ImageDataset::shards() const {
  return impl_->headers().shards;
}
std::string ImageDataset::contents() const {
  return contents_of(impl_->headers());
}
ImageDataset::Place ImageDataset::place_of(std::uint64_t sample) const {
  const SamplePlaces::Place place = impl_->places().place_of(sample);
  return {place.shard, place.sample};
}

std::shared_ptr<const ImageTransformer> ImageDataset::transformer(
    const ImageTransform& transform) const {
  return std::make_shared<const ImageTransformer>(transform, size(), impl_->seed());
}

void ImageDataset::read(std::span<const std::uint64_t> samples, const ImageTransformer& transformer,
                        std::span<float> pixels, std::span<std::int32_t> labels) const {
  const PictureSize size = transformer.transform().size;
  const auto each = pixels.empty() ? 0 : static_cast<std::size_t>(size.height * size.width * 3);
  TRIREME_CHECK(
      pixels.size() == samples.size() * each && (labels.empty() || labels.size() == samples.size()),
      "buffers of another size than the samples");
  if (pixels.empty() && labels.empty()) return;
  std::vector<std::uint8_t> picture(static_cast<std::size_t>(impl_->first().picture_bytes()));
  for (std::size_t i = 0; i < samples.size(); ++i) {
    const std::int32_t label =
        impl_->read(samples[i], picture, transformer, pixels.subspan(i * each, each));
    if (!labels.empty()) labels[i] = label;
  }
}

ImageBatch ImageDataset::read(std::span<const std::uint64_t> samples,
                              const ImageTransformer& transformer, const ImageParts& parts) const {
  const PictureSize size = transformer.transform().size;
  const auto each = static_cast<std::size_t>(size.height * size.width * 3);
  ImageBatch batch;
  batch.samples.assign(samples.begin(), samples.end());
  batch.pixels.resize(parts.pixels ? samples.size() * each : 0);
  batch.labels.resize(parts.labels ? samples.size() : 0);
  read(samples, transformer, batch.pixels, batch.labels);
  return batch;
}

}  // namespace trireme
