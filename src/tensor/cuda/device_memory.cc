// The sources of device memory, of shareable memory and of pinned host memory for the caching
// allocator.
#include <algorithm>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/tensor/cuda.h"
#include "trireme/tensor/cuda_shareable.h"

#include "tensor/caching_allocator.h"

namespace trireme::cuda {
namespace {

// A pool of reusable events of one device.
class EventPool {
 public:
  EventPool(std::shared_ptr<Runtime> runtime, int device)
      : runtime_(std::move(runtime)), device_(device) {}
  ~EventPool() {
    for (EventHandle event : idle_) runtime_->destroy_event(event);
  }
  EventPool(const EventPool&) = delete;
  EventPool& operator=(const EventPool&) = delete;

  // Marks the work that is queued on the stream now. A wait for an event keeps the mark that it
  // found, so the event may be recorded again at once.
  EventHandle record(StreamHandle stream) {
    EventHandle event = nullptr;
    if (idle_.empty()) {
      idle_.reserve(++made_);  // so that put() needs no memory
      event = runtime_->create_event(device_);
    } else {
      event = idle_.back();
      idle_.pop_back();
    }
    try {
      runtime_->record(event, stream);
    } catch (...) {
      put(event);
      throw;
    }
    return event;
  }
  void put(EventHandle event) noexcept { idle_.push_back(event); }
  void put_all(std::vector<EventHandle>& events) noexcept {
    for (EventHandle event : events) put(event);
    events.clear();
  }

 private:
  std::shared_ptr<Runtime> runtime_;
  const int device_;
  std::size_t made_ = 0;
  std::vector<EventHandle> idle_;
};

// The common base of device memory and pinned memory.
class CudaSource : public MemorySource {
 public:
  CudaSource(std::shared_ptr<Runtime> runtime, int device)
      : runtime_(std::move(runtime)), device_(device), events_(runtime_, device) {}

  void mark_uses(Block& block) noexcept override {
    for (StreamHandle stream : block.used_on) {
      try {
        block.pending.push_back(events_.record(stream));
      } catch (...) {
        wait_for(stream);
      }
    }
    block.used_on.clear();
  }
  void forget_uses(Block& block) noexcept override { events_.put_all(block.pending); }

 protected:
  // This is used if a mark cannot be set. If the stream fails too, its work will never run.
  void wait_for(StreamHandle stream) noexcept {
    try {
      runtime_->synchronize(stream);
    } catch (...) {
    }
  }

  const std::shared_ptr<Runtime> runtime_;
  const int device_;
  EventPool events_;
};

class DeviceMemory : public CudaSource {
 public:
  using CudaSource::CudaSource;

  Device device() const override { return {DeviceKind::kCuda, device_}; }

  Block take(std::size_t size, const Stream& stream) override {
    TRIREME_CHECK(stream.device() == device() && stream.native() != nullptr,
                  fmt::format("memory of {} was asked for on a stream of {}", device().to_string(),
                              stream.device().to_string()));
    Block block;
    block.data = static_cast<std::byte*>(runtime_->allocate(size, stream.native()));
    block.size = size;
    block.home = stream.native();
    return block;
  }

  void give_back(Block& block) noexcept override {
    for (EventHandle event : block.pending) {
      try {
        runtime_->wait(block.home, event);
      } catch (...) {
        try {
          runtime_->synchronize_event(event);
        } catch (...) {
        }
      }
    }
    events_.put_all(block.pending);
    runtime_->free(block.data, block.home);
  }

  void settle() noexcept override { runtime_->release_freed(device_); }

  std::string state() noexcept override {
    constexpr double kMiB = 1048576.0;
    try {
      const MemoryInfo memory = runtime_->memory_info(device_);
      return fmt::format("the device has {:.0f} of {:.0f} MiB free",
                         static_cast<double>(memory.free) / kMiB,
                         static_cast<double>(memory.total) / kMiB);
    } catch (...) {
      return {};
    }
  }

  // The marks stay with the block until all waits are queued, because after a failure halfway the
  // block may go to another stream.
  bool make_ready(Block& block, const Stream& stream) override {
    if (block.home != stream.native()) {
      block.pending.reserve(block.pending.size() + 1);
      const EventHandle earlier = events_.record(block.home);
      block.pending.push_back(earlier);
    }
    for (EventHandle event : block.pending) runtime_->wait(stream.native(), event);
    events_.put_all(block.pending);
    block.home = stream.native();
    return true;
  }
};

// The common base of memory that its next owner may use at once, without a stream: all marks must
// be done before.
class IdleMemory : public CudaSource {
 public:
  using CudaSource::CudaSource;

  bool make_ready(Block& block, const Stream&) override {
    const auto done = [&](EventHandle event) { return runtime_->done(event); };
    if (!std::all_of(block.pending.begin(), block.pending.end(), done)) return false;
    events_.put_all(block.pending);
    return true;
  }

  void give_back(Block& block) noexcept override {
    for (EventHandle event : block.pending) {
      try {
        runtime_->synchronize_event(event);
      } catch (...) {
      }
    }
    events_.put_all(block.pending);
    release(block.data);
  }

 protected:
  static Block block_of(void* memory, std::size_t size) {
    Block block;
    block.data = static_cast<std::byte*>(memory);
    block.size = size;
    return block;
  }
  virtual void release(void* memory) noexcept = 0;
};

class PinnedMemory final : public IdleMemory {
 public:
  using IdleMemory::IdleMemory;

  Device device() const override { return {}; }
  Block take(std::size_t size, const Stream&) override {
    return block_of(runtime_->allocate_pinned(size), size);
  }

 private:
  void release(void* memory) noexcept override { runtime_->free_pinned(memory); }
};

class ShareableMemory final : public IdleMemory {
 public:
  using IdleMemory::IdleMemory;

  Device device() const override { return {DeviceKind::kCuda, device_}; }
  Block take(std::size_t size, const Stream&) override {
    runtime_->set_device(device_);
    return block_of(runtime_->allocate(size, nullptr), size);
  }

 private:
  void release(void* memory) noexcept override { runtime_->free(memory, nullptr); }
};

}  // namespace

std::shared_ptr<Allocator> make_device_allocator(std::shared_ptr<Runtime> runtime, int device,
                                                 std::size_t limit) {
  return std::make_shared<CachingAllocator>(
      std::make_unique<DeviceMemory>(std::move(runtime), device), limit);
}

std::shared_ptr<Allocator> make_pinned_allocator(std::shared_ptr<Runtime> runtime, int device,
                                                 std::size_t limit) {
  return std::make_shared<CachingAllocator>(
      std::make_unique<PinnedMemory>(std::move(runtime), device), limit);
}

std::shared_ptr<Allocator> make_shareable_allocator(std::shared_ptr<Runtime> runtime, int device,
                                                    std::size_t limit) {
  return std::make_shared<CachingAllocator>(
      std::make_unique<ShareableMemory>(std::move(runtime), device), limit);
}

}  // namespace trireme::cuda
