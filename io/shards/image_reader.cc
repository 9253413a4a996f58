#include "trireme/io/image_reader.h"

#include <utility>

#include "trireme/io/read_ahead.h"

namespace trireme {

class ImageReader::Impl {
 public:
  Impl(std::shared_ptr<const ImageDataset> dataset, const ImageTransform& transform, BatchPlan plan,
       const ReadAheadOptions& options, const ImageParts& parts)
      : dataset_(std::move(dataset)),
        transformer_(dataset_->transformer(transform)),
        ahead_(
            std::move(plan),
            [this, parts](const std::vector<std::uint64_t>& samples) {
              return dataset_->read(samples, *transformer_, parts);
            },
            options) {}

  ReadAhead<ImageBatch>& ahead() { return ahead_; }

 private:
  std::shared_ptr<const ImageDataset> dataset_;
  std::shared_ptr<const ImageTransformer> transformer_;
  ReadAhead<ImageBatch> ahead_;
};

ImageReader::ImageReader(std::shared_ptr<const ImageDataset> dataset,
                         const ImageTransform& transform, BatchPlan plan,
                         const ReadAheadOptions& options, const ImageParts& parts)
    : impl_(
          std::make_unique<Impl>(std::move(dataset), transform, std::move(plan), options, parts)) {}

ImageReader::~ImageReader() = default;

std::optional<ImageBatch> ImageReader::next() {
  return impl_->ahead().next();
}

double ImageReader::wait_seconds() const {
  return impl_->ahead().wait_seconds();
}

}  // namespace trireme
