// Reads batches ahead of their use, on threads of its own.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/base/error.h"
#include "trireme/base/thread.h"
#include "trireme/io/batch_plan.h"

namespace trireme {

// Each thread reads a whole batch; next() returns the batches in the order of the steps.
template <class Batch>
class ReadAhead {
 public:
  using Read = std::function<Batch(const std::vector<std::uint64_t>& samples)>;  // on any thread

  ReadAhead(BatchPlan plan, Read read, const ReadAheadOptions& options)
      : plan_(std::move(plan)),
        read_(std::move(read)),
        most_(static_cast<std::uint64_t>(options.batches_ahead) +
              static_cast<std::uint64_t>(options.threads)),
        next_read_(options.first_step),
        next_taken_(options.first_step) {
    TRIREME_CHECK(options.batches_ahead >= 1, "a reader that reads nothing ahead");
    TRIREME_CHECK(options.threads >= 1, "a reader without threads");
    try {
      for (int i = 0; i < options.threads; ++i) {
        threads_.push_back(start_thread("reading ahead", [this] { run(); }));
      }
    } catch (...) {
      stop();
      throw;
    }
  }
  ~ReadAhead() { stop(); }
  ReadAhead(const ReadAhead&) = delete;
  ReadAhead& operator=(const ReadAhead&) = delete;

  std::optional<Batch> next() {
    std::unique_lock lock(mutex_);
    const auto is_there = [&] { return done_.contains(next_taken_) || end_ == next_taken_; };
    if (!is_there()) {
      const Stopwatch watch;
      changed_.wait(lock, is_there);
      wait_seconds_ += watch.seconds();
    }
    const auto found = done_.find(next_taken_);
    if (found == done_.end()) return std::nullopt;
    if (found->second.fault) std::rethrow_exception(found->second.fault);
    std::optional<Batch> batch = std::move(found->second.batch);
    done_.erase(found);
    ++next_taken_;
    lock.unlock();
    changed_.notify_all();
    return batch;
  }

  double wait_seconds() const {
    const std::lock_guard lock(mutex_);
    return wait_seconds_;
  }

 private:
  struct Done {
    std::optional<Batch> batch;
    std::exception_ptr fault;
  };

  void stop() {
    {
      const std::lock_guard lock(mutex_);
      stopping_ = true;
    }
    changed_.notify_all();
    threads_.clear();  // joins them
  }

  void run() {
    std::unique_lock lock(mutex_);
    for (;;) {
      // One thread at a time asks for a plan, and none after the one that found the end. At most
      // `most_` batches are ready or being read.
      changed_.wait(lock,
                    [&] { return stopping_ || (!planning_ && next_read_ - next_taken_ < most_); });
      if (stopping_) return;
      planning_ = true;
      const std::uint64_t step = next_read_;
      lock.unlock();
      Done done;
      bool is_end = false;
      try {
        const auto samples = plan_(step);
        is_end = !samples;
        if (samples) {
          lock.lock();
          planning_ = false;
          ++next_read_;
          lock.unlock();
          changed_.notify_all();
          done.batch = read_(*samples);
        }
      } catch (...) {
        done.fault = std::current_exception();
      }
      lock.lock();
      if (is_end) end_ = step;
      // Nothing is read after the end or a fault; what other threads are reading is still taken.
      if (is_end || done.fault) planning_ = stopping_ = true;
      if (!is_end) done_.emplace(step, std::move(done));
      changed_.notify_all();
      if (stopping_) return;
    }
  }

  BatchPlan plan_;
  Read read_;
  std::uint64_t most_;
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t next_read_, next_taken_;  // steps
  std::map<std::uint64_t, Done> done_;    // read, and not yet taken
  std::optional<std::uint64_t> end_;      // the step that is none
  bool planning_ = false;
  bool stopping_ = false;
  double wait_seconds_ = 0.0;
  std::vector<std::jthread> threads_;  // the last member: they use the others
};

}  // namespace trireme
