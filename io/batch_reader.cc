#include "trireme/io/batch_reader.h"

#include <condition_variable>
#include <deque>
#include <exception>
#include <mutex>
#include <thread>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"

namespace trireme {

class BatchReader::Impl {
 public:
  Impl(std::shared_ptr<const TokenDataset> dataset, BatchPlan plan,
       const BatchReaderOptions& options)
      : dataset_(std::move(dataset)), plan_(std::move(plan)), options_(options) {
    TRIREME_CHECK(options_.batches_ahead >= 1, "a batch reader that reads nothing ahead");
    thread_ = std::thread([this] { run(); });
  }

  ~Impl() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    thread_.join();
  }

  std::optional<TokenBatch> next() {
    std::unique_lock lock(mutex_);
    if (ready_.empty() && !ended_) {
      const Stopwatch watch;
      changed_.wait(lock, [&] { return !ready_.empty() || ended_; });
      wait_seconds_ += watch.seconds();
    }
    if (ready_.empty()) {
      if (fault_) std::rethrow_exception(fault_);
      return std::nullopt;
    }
    TokenBatch batch = std::move(ready_.front());
    ready_.pop_front();
    lock.unlock();
    changed_.notify_all();
    return batch;
  }

  double wait_seconds() const {
    const std::lock_guard lock(mutex_);
    return wait_seconds_;
  }

 private:
  void run() {
    std::exception_ptr fault;
    try {
      for (std::uint64_t step = options_.first_step;; ++step) {
        const auto samples = plan_(step);
        if (!samples || !hand_over(dataset_->read(*samples, options_.with_first_key))) break;
      }
    } catch (...) {
      fault = std::current_exception();
    }
    {
      const std::lock_guard lock(mutex_);
      ended_ = true;
      fault_ = fault;
    }
    changed_.notify_all();
  }

  // Waits for room. Returns false if the reader shall stop.
  bool hand_over(TokenBatch&& batch) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] {
      return stopping_ || ready_.size() < static_cast<std::size_t>(options_.batches_ahead);
    });
    if (stopping_) return false;
    ready_.push_back(std::move(batch));
    lock.unlock();
    changed_.notify_all();
    return true;
  }

  std::shared_ptr<const TokenDataset> dataset_;
  BatchPlan plan_;
  BatchReaderOptions options_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<TokenBatch> ready_;
  bool stopping_ = false;
  bool ended_ = false;
  std::exception_ptr fault_;
  double wait_seconds_ = 0.0;
  std::thread thread_;
};

BatchReader::BatchReader(std::shared_ptr<const TokenDataset> dataset, BatchPlan plan,
                         const BatchReaderOptions& options)
    : impl_(std::make_unique<Impl>(std::move(dataset), std::move(plan), options)) {}

BatchReader::~BatchReader() = default;

std::optional<TokenBatch> BatchReader::next() {
  return impl_->next();
}

double BatchReader::wait_seconds() const {
  return impl_->wait_seconds();
}

}  // namespace trireme
