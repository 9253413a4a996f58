// The addresses of memory that does not exist.
#pragma once

#include <cstddef>
#include <cstdint>
#include <limits>
#include <mutex>

#include "tensor/caching_allocator.h"

namespace trireme {

// Half of all addresses. No processor that we run on maps a program's memory there, so that an
// access ends the process at once instead of changing other data.
inline constexpr std::uintptr_t kFirstDry = std::uintptr_t{1} << (8 * sizeof(std::uintptr_t) - 1);

// Returns host memory of zeros, which std::free frees, or nullptr where there is none. Pages that
// nobody touches take no memory, so a micro-batch that nobody reads may have any size.
void* zeroed_memory(std::size_t bytes);

// Hands out ranges of such addresses, each once. Thread-safe.
class DryAddresses {
 public:
  // Returns nullptr where none is left: 8 EiB are taken.
  void* take(std::size_t bytes) {
    const std::lock_guard lock(mutex_);
    if (bytes > std::numeric_limits<std::uintptr_t>::max() - next_ - kBlockAlignment) {
      return nullptr;
    }
    void* const range = reinterpret_cast<void*>(next_);
    next_ += (bytes + kBlockAlignment - 1) / kBlockAlignment * kBlockAlignment;
    return range;
  }

 private:
  std::mutex mutex_;
  std::uintptr_t next_ = kFirstDry + kBlockAlignment;  // the first is dry_stream()'s
};

}  // namespace trireme
