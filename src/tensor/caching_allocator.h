// The caching allocator, one class for every kind of memory.
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <optional>
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
  void give_back_reserve() override;
  MemoryStats stats() const override;
  void reached(const MemoryPoint& point) override;
  Device device() const override { return source_->device(); }

  void record_use(Block& block, const Stream& stream);

  using FreeBlocks = std::map<std::size_t, std::vector<Block>>;  // by size class, in release order

  // Blocks that are reserved for work that is captured once and replayed on `stream`: between two
  // replays nothing else gets them. While an arena is open, allocations come from it and stay with
  // it. Only one is open at a time.
  struct Arena {
    explicit Arena(Stream given) : stream(given) {}
    const Stream stream;
    // Set while work is captured: new blocks are allocated in the order of this stream, which is
    // not captured.
    std::optional<Stream> setup;
    FreeBlocks free;
    std::vector<Block> kept;  // other blocks, released during a capture whose work may use them
    bool ended = false;
  };
  void open(const std::shared_ptr<Arena>& arena);
  // The same, for work that is captured: all free blocks of the arena are ready for it on any
  // stream.
  void open_for_capture(const std::shared_ptr<Arena>& arena, const Stream& setup);
  void close(Arena& arena) noexcept;
  // Work queued on the arena's stream from now on comes after all earlier uses of its free blocks.
  void settle(Arena& arena);
  // Returns its blocks to general use, behind the work that its stream holds now.
  void end(Arena& arena) noexcept;

  // The deleter of our Buffers; record_use finds the block through it.
  struct Return {
    std::shared_ptr<CachingAllocator> owner;  // lives until its last block is returned
    Block block;
    MemoryUse use;
    std::shared_ptr<Arena> arena;  // nullptr: the block belongs to no arena
    void operator()(std::byte*) { owner->give_back(std::move(block), use, arena.get()); }
  };

 private:
  // Sets `arena` to the arena from which the block comes.
  Block take(std::size_t size, MemoryUse use, const Stream& stream, std::shared_ptr<Arena>& arena);
  Block from_cache(FreeBlocks& free, std::size_t size, const Stream& stream);  // empty: none fits
  // data is nullptr if none is left. Releases the lock while it waits for the device.
  Block from_system(std::size_t size, const Stream& stream, std::unique_lock<std::mutex>& lock);
  Block for_capture(std::size_t size, const Stream& stream);  // likewise; never waits
  void give_back(Block block, MemoryUse use, Arena* arena);
  void count_live(std::size_t size, MemoryUse use);
  void count_gone(std::size_t size, MemoryUse use);
  void release_cached();  // the source's settle() makes them available
  std::string out_of_memory_message(std::size_t size, MemoryUse use) const;

  const std::unique_ptr<MemorySource> source_;
  const std::size_t limit_;
  mutable std::mutex mutex_;
  FreeBlocks free_;
  std::shared_ptr<Arena> open_;
  MemoryStats stats_;
  MemoryPoint point_;
};

}  // namespace trireme
