// Where a caching allocator gets its blocks from, and what must be done before a block may be used
// again.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trireme/tensor/device.h"

namespace trireme {

struct Block {
  std::byte* data = nullptr;
  std::size_t size = 0;
  void* home = nullptr;        // the stream that orders its use; nullptr on the host
  std::vector<void*> used_on;  // other streams that use it
  std::vector<void*> pending;  // of a free block: events; it is idle after all of them
};

// One thread at a time calls it, but settle() may run at the same time as the other calls.
class MemorySource {
 public:
  virtual ~MemorySource() = default;

  virtual Device device() const = 0;
  // Returns a block with size, data and home set; data is nullptr if there is not enough memory.
  virtual Block take(std::size_t size, const Stream& stream) = 0;
  // Returns a block to the system. Queued work may still use it.
  virtual void give_back(Block& block) noexcept = 0;
  // Makes the memory of all blocks that were given back available to take().
  virtual void settle() noexcept {}
  // What the system says about its memory, for use in a message; may be empty.
  virtual std::string state() noexcept { return {}; }

  // Called when the owner releases the block: turns used_on into pending.
  virtual void mark_uses(Block&) noexcept {}
  // Drops pending: its events are known to come first, so nothing needs to wait for them.
  virtual void forget_uses(Block&) noexcept {}
  // Makes the next owner's work on `stream` come after all earlier uses. Returns false if the host
  // would have to wait for that. If it throws, the block is unchanged.
  virtual bool make_ready(Block&, const Stream&) { return true; }
};

}  // namespace trireme
