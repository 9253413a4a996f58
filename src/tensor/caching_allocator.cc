#include "tensor/caching_allocator.h"

#include <algorithm>
#include <bit>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme {
namespace {

bool lives_as_long_as_the_model(MemoryUse use) {
  return use == MemoryUse::kParameters || use == MemoryUse::kGradients ||
         use == MemoryUse::kOptimizer;
}

// Blocks that come and go have eight size classes per power of two, large blocks 32. So at most an
// eighth, or a 32nd, of a block is wasted. Blocks that live as long as the model are only rounded
// up to the alignment.
std::size_t size_class(std::size_t bytes, MemoryUse use) {
  bytes = std::max(bytes, kBlockAlignment);
  const std::size_t classes = bytes < kHugePage ? 8 : 32;
  const std::size_t step = lives_as_long_as_the_model(use)
                               ? kBlockAlignment
                               : std::max(std::bit_floor(bytes) / classes, kBlockAlignment);
  return (bytes + step - 1) / step * step;
}

// Says what a user can do. Parameters, gradients and the optimizer's state do not depend on the
// batch.
std::string_view remedy(MemoryUse use) {
  return lives_as_long_as_the_model(use)
             ? "more --grid.tensor or --grid.pipeline"
             : "a smaller --batch.micro, --run.precision bf16, --recompute.mode full, or more "
               "--grid.tensor or --grid.pipeline";
}

}  // namespace

CachingAllocator::~CachingAllocator() {
  release_cached();
  source_->settle();
}

Buffer CachingAllocator::allocate(std::size_t bytes, MemoryUse use, const Stream& stream) {
  std::shared_ptr<Arena> arena;
  Block block = take(size_class(bytes, use), use, stream, arena);
  std::byte* data = block.data;
  return {data, Return{shared_from_this(), std::move(block), use, std::move(arena)}};
}

Buffer CachingAllocator::adopt(Buffer memory, std::size_t bytes, MemoryUse use) {
  {
    const std::lock_guard lock(mutex_);
    stats_.reserved += bytes;
    count_live(bytes, use);
  }
  std::byte* data = memory.get();
  return {data,
          [self = shared_from_this(), owned = std::move(memory), bytes, use](std::byte*) mutable {
            owned.reset();
            const std::lock_guard lock(self->mutex_);
            self->stats_.reserved -= bytes;
            self->count_gone(bytes, use);
          }};
}

void CachingAllocator::give_back_reserve() {
  {
    const std::lock_guard lock(mutex_);
    release_cached();
  }
  source_->settle();
}

MemoryStats CachingAllocator::stats() const {
  const std::lock_guard lock(mutex_);
  return stats_;
}

void CachingAllocator::reached(const MemoryPoint& point) {
  const std::lock_guard lock(mutex_);
  point_ = point;
}

void CachingAllocator::record_use(Block& block, const Stream& stream) {
  const std::lock_guard lock(mutex_);
  if (stream.native() == nullptr || stream.native() == block.home) return;
  const auto known = std::find(block.used_on.begin(), block.used_on.end(), stream.native());
  if (known == block.used_on.end()) block.used_on.push_back(stream.native());
}

Block CachingAllocator::take(std::size_t size, MemoryUse use, const Stream& stream,
                             std::shared_ptr<Arena>& arena) {
  std::unique_lock lock(mutex_);
  arena = open_;
  Block block = from_cache(arena ? arena->free : free_, size, stream);
  if (block.data == nullptr) {
    const bool captures = arena && arena->setup;
    block = captures ? for_capture(size, stream) : from_system(size, stream, lock);
    if (block.data == nullptr) throw OutOfMemoryError(out_of_memory_message(size, use));
    stats_.reserved += size;
  }
  count_live(size, use);
  return block;
}

void CachingAllocator::count_live(std::size_t size, MemoryUse use) {
  const auto index = static_cast<std::size_t>(use);
  stats_.live[index] += size;
  stats_.peak[index] = std::max(stats_.peak[index], stats_.live[index]);
  stats_.total_live += size;
  if (stats_.total_live <= stats_.total_peak) return;
  stats_.total_peak = stats_.total_live;
  stats_.at_peak = stats_.live;
  stats_.peak_point = point_;
}

void CachingAllocator::count_gone(std::size_t size, MemoryUse use) {
  stats_.live[static_cast<std::size_t>(use)] -= size;
  stats_.total_live -= size;
}

// Prefers the newest block of the same stream, which is ready by the order of the stream. Among
// blocks of other streams takes the one that has been idle for longest.
Block CachingAllocator::from_cache(FreeBlocks& free, std::size_t size, const Stream& stream) {
  const auto cached = free.find(size);
  if (cached == free.end()) return {};
  std::vector<Block>& blocks = cached->second;
  const auto hand_out = [&](std::size_t index) {
    Block block = std::move(blocks[index]);
    blocks.erase(blocks.begin() + static_cast<std::ptrdiff_t>(index));
    return block;
  };
  for (std::size_t i = blocks.size(); i-- > 0;) {
    if (blocks[i].home == stream.native() && source_->make_ready(blocks[i], stream)) {
      return hand_out(i);
    }
  }
  for (std::size_t i = 0; i < blocks.size(); ++i) {
    if (blocks[i].home != stream.native() && source_->make_ready(blocks[i], stream)) {
      return hand_out(i);
    }
  }
  return {};
}

Block CachingAllocator::from_system(std::size_t size, const Stream& stream,
                                    std::unique_lock<std::mutex>& lock) {
  // Releases the lock while it waits: the device may wait for a thread that must first return
  // blocks.
  const auto flush = [&] {
    release_cached();
    lock.unlock();
    source_->settle();
    lock.lock();
  };
  const auto over_limit = [&] { return limit_ != 0 && stats_.reserved + size > limit_; };
  if (over_limit()) flush();
  if (over_limit()) return {};
  Block block = source_->take(size, stream);
  if (block.data == nullptr) {
    flush();
    block = source_->take(size, stream);
  }
  return block;
}

Block CachingAllocator::for_capture(std::size_t size, const Stream& stream) {
  if (limit_ != 0 && stats_.reserved + size > limit_) return {};
  Block block = source_->take(size, *open_->setup);
  block.home = stream.native();
  return block;
}

void CachingAllocator::give_back(Block block, MemoryUse use, Arena* arena) {
  const std::lock_guard lock(mutex_);
  count_gone(block.size, use);
  if (arena == nullptr && open_ && open_->setup) {
    open_->kept.push_back(std::move(block));
    return;
  }
  source_->mark_uses(block);
  if (arena != nullptr && arena->ended) block.home = arena->stream.native();
  FreeBlocks& free = arena == nullptr || arena->ended ? free_ : arena->free;
  free[block.size].push_back(std::move(block));
}

void CachingAllocator::open(const std::shared_ptr<Arena>& arena) {
  const std::lock_guard lock(mutex_);
  TRIREME_CHECK(!open_, "an arena was opened while another one was");
  open_ = arena;
}

void CachingAllocator::open_for_capture(const std::shared_ptr<Arena>& arena, const Stream& setup) {
  open(arena);
  const std::lock_guard lock(mutex_);
  arena->setup = setup;
}

void CachingAllocator::settle(Arena& arena) {
  const std::lock_guard lock(mutex_);
  for (auto& [size, blocks] : arena.free) {
    for (Block& block : blocks) source_->make_ready(block, arena.stream);
  }
}

// The order of uses within captured work means nothing outside of it. From outside, all captured
// work is work of the arena's stream.
void CachingAllocator::close(Arena& arena) noexcept {
  const std::lock_guard lock(mutex_);
  open_.reset();
  if (!arena.setup) return;
  for (auto& [size, blocks] : arena.free) {
    for (Block& block : blocks) {
      source_->forget_uses(block);
      block.home = arena.stream.native();
    }
  }
  arena.setup.reset();
}

void CachingAllocator::end(Arena& arena) noexcept {
  const std::lock_guard lock(mutex_);
  arena.ended = true;
  const auto release = [&](Block& block) {
    block.home = arena.stream.native();
    free_[block.size].push_back(std::move(block));
  };
  for (auto& [size, blocks] : arena.free) std::ranges::for_each(blocks, release);
  for (Block& block : arena.kept) {
    source_->mark_uses(block);
    release(block);
  }
  arena.free.clear();
  arena.kept.clear();
}

void CachingAllocator::release_cached() {
  for (auto& [size, blocks] : free_) {
    for (Block& block : blocks) {
      source_->give_back(block);
      stats_.reserved -= size;
    }
    blocks.clear();
  }
}

std::string CachingAllocator::out_of_memory_message(std::size_t size, MemoryUse use) const {
  constexpr double kMiB = 1048576.0;
  std::string held;
  for (std::size_t i = 0; i < kMemoryUses; ++i) {
    held += fmt::format("{}{} {:.0f} MiB", i == 0 ? "" : ", ", name_of(static_cast<MemoryUse>(i)),
                        static_cast<double>(stats_.live[i]) / kMiB);
  }
  const std::string state = source_->state();
  return fmt::format(
      "out of memory on {}: {:.1f} MiB more were asked for, for {}; in use: {}{}{}; {} would need "
      "less",
      device().to_string(), static_cast<double>(size) / kMiB, name_of(use), held,
      state.empty() ? "" : "; ", state, remedy(use));
}

void record_use(const Buffer& buffer, const Stream& stream) {
  auto* end = std::get_deleter<CachingAllocator::Return>(buffer);
  if (end != nullptr) end->owner->record_use(end->block, stream);
}

}  // namespace trireme
