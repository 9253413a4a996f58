// The one caching allocator, for every kind of memory.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "trireme/tensor/allocator.h"

#include "tensor/memory_source.h"

namespace trireme {

inline constexpr std::size_t kBlockAlignment = 64;
inline constexpr std::size_t kHugePage = std::size_t{2} << 20;

class CachingAllocator : public Allocator, public std::enable_shared_from_this<CachingAllocator> {
 public:
  CachingAllocator(std::unique_ptr<MemorySource> source, std::size_t limit)
      : source_(std::move(source)), limit_(limit) {}
  ~CachingAllocator() override;

  Buffer allocate(std::size_t bytes, MemoryUse use, const Stream& stream) override;
  Buffer adopt(Buffer memory, std::size_t bytes, MemoryUse use) override;
  MemoryStats stats() const override;
  Device device() const override { return source_->device(); }

  void record_use(Block& block, const Stream& stream);

  // What a Buffer of ours does at its end; record_use finds the block by it.
  struct Return {
    std::shared_ptr<CachingAllocator> owner;  // lives until its last block is back
    Block block;
    MemoryUse use;
    void operator()(std::byte*) { owner->give_back(std::move(block), use); }
  };

 private:
  Block take(std::size_t size, MemoryUse use, const Stream& stream);
  Block from_cache(std::size_t size, const Stream& stream);  // without data: none fits
  // Without data: none is left. Lets go of the lock while the device is waited for.
  Block from_system(std::size_t size, const Stream& stream, std::unique_lock<std::mutex>& lock);
  void give_back(Block block, MemoryUse use);
  void count_live(std::size_t size, MemoryUse use);
  void count_gone(std::size_t size, MemoryUse use);
  void release_cached();  // for settle() of the source to make available
  std::string out_of_memory_message(std::size_t size, MemoryUse use) const;

  const std::unique_ptr<MemorySource> source_;
  const std::size_t limit_;
  mutable std::mutex mutex_;
  std::map<std::size_t, std::vector<Block>> free_;  // by size class, in the order of their return
  MemoryStats stats_;
};

}  // namespace trireme
