// Device memory: reference-counted blocks from a caching allocator, counted by what they are for.
#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/tensor/device.h"

namespace trireme {

// What a block is for; memory is reported under these names.
enum class MemoryUse {
  kParameters,
  kGradients,
  kOptimizer,
  kActivations,
  kWorkspace,
  kCommunication
};
inline constexpr std::size_t kMemoryUses = 6;
std::string_view name_of(MemoryUse use);

// Shared ownership of a block; the last owner gives it back to its allocator. 64-byte aligned.
using Buffer = std::shared_ptr<std::byte>;

// Work on `stream` that is queued by now uses the block too: given back, it is handed out again
// only after that work. The stream that it was allocated on needs no such word. Nothing happens for
// memory that no allocator of ours owns, or for a stream of the CPU.
void record_use(const Buffer& buffer, const Stream& stream);

struct MemoryStats {
  std::array<std::size_t, kMemoryUses> live{};  // bytes in use now, by MemoryUse
  std::array<std::size_t, kMemoryUses> peak{};  // the most there was of each
  std::size_t total_live = 0;
  std::size_t total_peak = 0;  // most in use at one time
  std::size_t reserved = 0;    // taken from the system: in use and cached
};

// Thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;

  // A block of at least `bytes`, contents undefined. `stream` orders its first use after the
  // block's earlier life; uses on other streams are for record_use. Throws OutOfMemoryError, whose
  // message says what each MemoryUse holds.
  virtual Buffer allocate(std::size_t bytes, MemoryUse use, const Stream& stream) = 0;
  // Memory of another origin on the same device, counted as the allocator's own while the buffer
  // lives, which owns it. record_use knows nothing of it: its origin takes care that it outlives
  // its use.
  virtual Buffer adopt(Buffer memory, std::size_t bytes, MemoryUse use) = 0;
  virtual MemoryStats stats() const = 0;
  virtual Device device() const = 0;
};

// Keeps freed blocks by size class and hands them out again, so that a training step that repeats
// itself asks the system for nothing. `limit` bounds what it takes from the system (0: no bound).
// `device` is the CPU; that of a GPU is cuda::make_device_allocator.
std::shared_ptr<Allocator> make_caching_allocator(Device device, std::size_t limit = 0);

}  // namespace trireme
