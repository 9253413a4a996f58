#include "trireme/tensor/allocator.h"

#include <algorithm>
#include <bit>
#include <cstdlib>
#include <map>
#include <mutex>
#include <numeric>
#include <vector>

#include <fmt/format.h>
#include <sys/mman.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

constexpr std::size_t kAlignment = 64;
constexpr std::size_t kHugePage = std::size_t{2} << 20;

bool lives_as_long_as_the_model(MemoryUse use) {
  return use == MemoryUse::kParameters || use == MemoryUse::kGradients ||
         use == MemoryUse::kOptimizer;
}

// Of what comes and goes there are eight classes per power of two, and 32 of large blocks: at most
// an eighth, and a 32nd, of a block is wasted. What stays is not rounded up.
std::size_t size_class(std::size_t bytes, MemoryUse use) {
  bytes = std::max(bytes, kAlignment);
  const std::size_t classes = bytes < kHugePage ? 8 : 32;
  const std::size_t step = lives_as_long_as_the_model(use)
                               ? kAlignment
                               : std::max(std::bit_floor(bytes) / classes, kAlignment);
  return (bytes + step - 1) / step * step;
}

class CachingAllocator : public Allocator, public std::enable_shared_from_this<CachingAllocator> {
 public:
  CachingAllocator(Device device, std::size_t limit) : device_(device), limit_(limit) {}

  ~CachingAllocator() override {
    for (auto& [size, blocks] : free_) {
      for (void* block : blocks) std::free(block);
    }
  }

  Buffer allocate(std::size_t bytes, MemoryUse use, const Stream&) override {
    const std::size_t size = size_class(bytes, use);
    auto* block = static_cast<std::byte*>(take(size, use));
    // The allocator lives until its last block is back.
    return {block, [self = shared_from_this(), size, use](std::byte* returned) {
              self->give_back(returned, size, use);
            }};
  }

  MemoryStats stats() const override {
    const std::lock_guard lock(mutex_);
    return stats_;
  }

  Device device() const override { return device_; }

 private:
  void* take(std::size_t size, MemoryUse use) {
    const std::lock_guard lock(mutex_);
    void* block = nullptr;
    auto cached = free_.find(size);
    if (cached != free_.end() && !cached->second.empty()) {
      block = cached->second.back();
      cached->second.pop_back();
    } else {
      block = from_system(size);
      if (block == nullptr) throw OutOfMemoryError(out_of_memory_message(size));
      stats_.reserved += size;
    }
    const auto index = static_cast<std::size_t>(use);
    stats_.live[index] += size;
    stats_.peak[index] = std::max(stats_.peak[index], stats_.live[index]);
    stats_.total_live += size;
    stats_.total_peak = std::max(stats_.total_peak, stats_.total_live);
    return block;
  }

  void give_back(void* block, std::size_t size, MemoryUse use) {
    const std::lock_guard lock(mutex_);
    free_[size].push_back(block);
    stats_.live[static_cast<std::size_t>(use)] -= size;
    stats_.total_live -= size;
  }

  void* from_system(std::size_t size) {
    if (limit_ != 0 && stats_.reserved + size > limit_) release_cached();
    if (limit_ != 0 && stats_.reserved + size > limit_) return nullptr;
    void* block = nullptr;
    const std::size_t alignment = size >= kHugePage ? kHugePage : kAlignment;
    if (posix_memalign(&block, alignment, size) != 0) {
      release_cached();
      if (posix_memalign(&block, alignment, size) != 0) return nullptr;
    }
    if (size >= kHugePage) madvise(block, size, MADV_HUGEPAGE);  // advice: failure does no harm
    return block;
  }

  void release_cached() {
    for (auto& [size, blocks] : free_) {
      for (void* block : blocks) {
        std::free(block);
        stats_.reserved -= size;
      }
      blocks.clear();
    }
  }

  std::string out_of_memory_message(std::size_t size) const {
    constexpr double kMiB = 1048576.0;
    std::string held;
    for (std::size_t i = 0; i < kMemoryUses; ++i) {
      held += fmt::format("{}{} {:.0f} MiB", i == 0 ? "" : ", ", name_of(static_cast<MemoryUse>(i)),
                          static_cast<double>(stats_.live[i]) / kMiB);
    }
    return fmt::format(
        "out of memory on {}: {:.1f} MiB more were asked for; in use: {}; a smaller --batch.micro "
        "or "
        "more --grid.tensor or --grid.pipeline would need less",
        device_.to_string(), static_cast<double>(size) / kMiB, held);
  }

  const Device device_;
  const std::size_t limit_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<void*>> free_;  // by size class
  MemoryStats stats_;
};

}  // namespace

std::string_view name_of(MemoryUse use) {
  constexpr std::array<std::string_view, kMemoryUses> kNames = {
      "parameters", "gradients", "optimizer", "activations", "workspace", "communication"};
  return kNames.at(static_cast<std::size_t>(use));
}

std::shared_ptr<Allocator> make_caching_allocator(Device device, std::size_t limit) {
  TRIREME_CHECK(device.kind == DeviceKind::kCpu, "this build has no CUDA allocator");
  return std::make_shared<CachingAllocator>(device, limit);
}

}  // namespace trireme
