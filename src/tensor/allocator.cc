#include "trireme/tensor/allocator.h"

#include <cstdlib>

#include <sys/mman.h>

#include "trireme/base/error.h"

#include "tensor/caching_allocator.h"

namespace trireme {
namespace {

class HostMemory : public MemorySource {
 public:
  Device device() const override { return {}; }

  Block take(std::size_t size, const Stream&) override {
    void* data = nullptr;
    const std::size_t alignment = size >= kHugePage ? kHugePage : kBlockAlignment;
    if (posix_memalign(&data, alignment, size) != 0) return {};
    if (size >= kHugePage) madvise(data, size, MADV_HUGEPAGE);  // advice: failure does no harm
    Block block;
    block.data = static_cast<std::byte*>(data);
    block.size = size;
    return block;
  }

  void give_back(Block& block) noexcept override { std::free(block.data); }
};

}  // namespace

std::string_view name_of(MemoryUse use) {
  constexpr std::array<std::string_view, kMemoryUses> kNames = {
      "parameters", "gradients", "optimizer", "activations", "workspace", "communication"};
  return kNames.at(static_cast<std::size_t>(use));
}

std::shared_ptr<Allocator> make_caching_allocator(Device device, std::size_t limit) {
  TRIREME_CHECK(device.kind == DeviceKind::kCpu, "make_caching_allocator is for the CPU's memory");
  return std::make_shared<CachingAllocator>(std::make_unique<HostMemory>(), limit);
}

}  // namespace trireme
