// Where a caching allocator gets its blocks from, and what must have happened before a block may be
// used again.
#pragma once

#include <cstddef>
#include <string>
#include <vector>

#include "trireme/tensor/device.h"

namespace trireme {

struct Block {
  std::byte* data = nullptr;
  std::size_t size = 0;
  void* home = nullptr;        // the stream whose order its use follows; none on the host
  std::vector<void*> used_on;  // other streams that use it
  std::vector<void*> pending;  // of a block that is free: events, after each of which it is idle
};

// Called by one thread at a time, but for settle(), which may run beside the other calls.
class MemorySource {
 public:
  virtual ~MemorySource() = default;

  virtual Device device() const = 0;
  // A block with size, data and home set; data is nullptr where there is not enough.
  virtual Block take(std::size_t size, const Stream& stream) = 0;
  // Work that is queued may still use it.
  virtual void give_back(Block& block) noexcept = 0;
  // After all that was given back: makes it available to take().
  virtual void settle() noexcept {}
  // What the system says about its memory, for a message; may be empty.
  virtual std::string state() noexcept { return {}; }

  // The owner has let go: turns used_on into pending.
  virtual void mark_uses(Block&) noexcept {}
  // All that pending stands for is known to come first: it need not be waited for.
  virtual void forget_uses(Block&) noexcept {}
  // Lets the next owner's work on `stream` come after all earlier use. False: not yet, as the host
  // would have to wait. If it throws, the block is as it was.
  virtual bool make_ready(Block&, const Stream&) { return true; }
};

}  // namespace trireme
