// The one caching allocator, for every kind of memory.
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
  MemoryStats stats() const override;
  Device device() const override { return source_->device(); }

  void record_use(Block& block, const Stream& stream);

  using FreeBlocks = std::map<std::size_t, std::vector<Block>>;  // by size class, as they came back

  // Blocks set apart for work that is captured once and replayed on `stream`: between two replays
  // nobody else gets them. What is allocated while an arena is open comes from it and stays with
  // it; one is open at a time.
  struct Arena {
    explicit Arena(Stream given) : stream(given) {}
    const Stream stream;
    // While work is captured: new blocks come in the order of this stream, which is not.
    std::optional<Stream> setup;
    FreeBlocks free;
    std::vector<Block> kept;  // others', given back while work was captured that may use them
    bool ended = false;
  };
  void open(const std::shared_ptr<Arena>& arena);
  // What is allocated is for work that is captured, which free blocks are ready for on any stream.
  void open_for_capture(const std::shared_ptr<Arena>& arena, const Stream& setup);
  void close(Arena& arena) noexcept;
  // What the arena's stream holds from now on comes after all earlier use of free blocks.
  void settle(Arena& arena);
  // Its blocks are anybody's, after what its stream holds by now.
  void end(Arena& arena) noexcept;

  // What a Buffer of ours does at its end; record_use finds the block by it.
  struct Return {
    std::shared_ptr<CachingAllocator> owner;  // lives until its last block is back
    Block block;
    MemoryUse use;
    std::shared_ptr<Arena> arena;  // none: it is nobody's in particular
    void operator()(std::byte*) { owner->give_back(std::move(block), use, arena.get()); }
  };

 private:
  // `arena` becomes the one that the block comes from.
  Block take(std::size_t size, MemoryUse use, const Stream& stream, std::shared_ptr<Arena>& arena);
  Block from_cache(FreeBlocks& free, std::size_t size, const Stream& stream);  // no data: none fits
  // Without data: none is left. Lets go of the lock while the device is waited for.
  Block from_system(std::size_t size, const Stream& stream, std::unique_lock<std::mutex>& lock);
  Block for_capture(std::size_t size, const Stream& stream);  // likewise; waits for nothing
  void give_back(Block block, MemoryUse use, Arena* arena);
  void count_live(std::size_t size, MemoryUse use);
  void count_gone(std::size_t size, MemoryUse use);
  void release_cached();  // for settle() of the source to make available
  std::string out_of_memory_message(std::size_t size, MemoryUse use) const;

  const std::unique_ptr<MemorySource> source_;
  const std::size_t limit_;
  mutable std::mutex mutex_;
  FreeBlocks free_;
  std::shared_ptr<Arena> open_;
  MemoryStats stats_;
};

}  // namespace trireme
