#include "trireme/io/batch_reader.h"

#include <utility>

#include "trireme/io/read_ahead.h"

namespace trireme {

class BatchReader::Impl {
 public:
  Impl(std::shared_ptr<const TokenDataset> dataset, BatchPlan plan,
       const BatchReaderOptions& options)
      : ahead_(std::move(plan),
               [own = std::move(dataset), with_first_key = options.with_first_key](
                   const std::vector<std::uint64_t>& samples) {
                 return own->read(samples, with_first_key);
               },
               {.first_step = options.first_step, .batches_ahead = options.batches_ahead}) {}

  ReadAhead<TokenBatch>& ahead() { return ahead_; }

 private:
  ReadAhead<TokenBatch> ahead_;
};

BatchReader::BatchReader(std::shared_ptr<const TokenDataset> dataset, BatchPlan plan,
                         const BatchReaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(dataset), std::move(plan), options)) {}

BatchReader::~BatchReader() = default;

std::optional<TokenBatch> BatchReader::next() {
  return impl_->ahead().next();
}

double BatchReader::wait_seconds() const {
  return impl_->ahead().wait_seconds();
}

}  // namespace trireme
