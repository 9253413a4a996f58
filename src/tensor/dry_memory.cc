#include "tensor/dry_memory.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

#include <sys/mman.h>

#include "trireme/tensor/allocator.h"

namespace trireme {
namespace {

// Tells dry blocks from real ones by the stream that they were allocated on.
class DryMemory : public MemorySource {
 public:
  Device device() const override { return {}; }

  Block take(std::size_t size, const Stream& stream) override {
    Block block;
    block.size = size;
    block.home = stream.native();
    void* const data = block.home == nullptr ? zeroed_memory(size) : addresses_.take(size);
    block.data = static_cast<std::byte*>(data);
    return block;
  }

  void give_back(Block& block) noexcept override {
    if (!is_dry(block.data)) std::free(block.data);
  }

  // A block never changes from dry to real.
  bool make_ready(Block& block, const Stream& stream) override {
    return block.home == stream.native();
  }

 private:
  DryAddresses addresses_;
};

}  // namespace

void* zeroed_memory(std::size_t bytes) {
  constexpr std::uintptr_t kPage = 4096;
  constexpr std::size_t kLarge = 64 * kPage;
  void* memory = nullptr;
  const bool large = bytes >= kLarge;
  if (posix_memalign(&memory, large ? kPage : kBlockAlignment, bytes) != 0) return nullptr;
  // The kernel takes whole pages back, and gives zeros on the next access.
  std::size_t untouched = large ? bytes / kPage * kPage : 0;
  if (untouched != 0 && madvise(memory, untouched, MADV_DONTNEED) != 0) untouched = 0;
  std::memset(static_cast<std::byte*>(memory) + untouched, 0, bytes - untouched);
  return memory;
}

std::shared_ptr<Allocator> make_dry_allocator() {
  return std::make_shared<CachingAllocator>(std::make_unique<DryMemory>(), 0);
}

Stream dry_stream() {
  return Stream(Device(), reinterpret_cast<void*>(kFirstDry));
}

bool is_dry(const void* memory) {
  return reinterpret_cast<std::uintptr_t>(memory) >= kFirstDry;
}

}  // namespace trireme
