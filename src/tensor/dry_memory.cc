#include "tensor/dry_memory.h"

#include <cstdint>
#include <cstdlib>
#include <cstring>

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
