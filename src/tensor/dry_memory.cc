// Memory that is counted and does not exist.
#include <cstdint>
#include <cstdlib>
#include <cstring>

#include "trireme/tensor/allocator.h"

#include "tensor/caching_allocator.h"

namespace trireme {
namespace {

// Half of all addresses. No processor that we run on maps a program's memory there, so that an
// access ends the process at once instead of changing other data.
constexpr std::uintptr_t kFirstDry = std::uintptr_t{1} << (8 * sizeof(std::uintptr_t) - 1);

// Tells dry blocks from real ones by the stream that they were allocated on.
class DryMemory : public MemorySource {
 public:
  Device device() const override { return {}; }

  Block take(std::size_t size, const Stream& stream) override {
    Block block;
    block.size = size;
    block.home = stream.native();
    if (block.home == nullptr) {
      void* data = nullptr;
      if (posix_memalign(&data, kBlockAlignment, size) != 0) return {};
      std::memset(data, 0, size);
      block.data = static_cast<std::byte*>(data);
    } else {
      block.data = reinterpret_cast<std::byte*>(next_);  // sizes are multiples of the alignment
      next_ += size;
    }
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
  std::uintptr_t next_ = kFirstDry;
};

}  // namespace

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
