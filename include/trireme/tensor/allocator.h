// Device memory: reference-counted blocks from a caching allocator, which counts them by use.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "trireme/tensor/device.h"

namespace trireme {

// The use of a block; memory is reported under these names.
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

// Shared ownership of a block; the last owner returns it to its allocator. 64-byte aligned.
using Buffer = std::shared_ptr<std::byte>;

// Says that work queued so far on `stream` uses the block too: after the block is released, it is
// handed out again only behind that work. Not needed for the stream on which the block was
// allocated. Does nothing for memory that none of our allocators owns, or for a CPU stream.
void record_use(const Buffer& buffer, const Stream& stream);

// A point of a run, as the code names it: "forward" of micro-batch 3.
struct MemoryPoint {
  std::string_view name;     // a string literal; empty: before the first named point
  std::int64_t number = -1;  // -1: none

  bool operator==(const MemoryPoint&) const = default;
};

struct MemoryStats {
  std::array<std::size_t, kMemoryUses> live{};  // bytes in use now, by MemoryUse
  std::array<std::size_t, kMemoryUses> peak{};  // peak of each
  std::size_t total_live = 0;
  std::size_t total_peak = 0;                      // peak of total_live
  std::array<std::size_t, kMemoryUses> at_peak{};  // `live` when total_peak was reached first
  MemoryPoint peak_point;                          // where that was: see Allocator::reached
  std::size_t reserved = 0;                        // taken from the system: in use or cached
};

// Thread-safe.
class Allocator {
 public:
  virtual ~Allocator() = default;

  // Returns a block of at least `bytes` with undefined contents. Its first use is ordered on
  // `stream`, after all earlier uses of the block; announce uses on other streams with record_use.
  // Throws OutOfMemoryError, whose message says what each MemoryUse holds.
  virtual Buffer allocate(std::size_t bytes, MemoryUse use, const Stream& stream) = 0;
  // Wraps memory of another origin on the same device. The result owns it, and the allocator counts
  // it as its own while the result lives. record_use does nothing for it: its origin must make sure
  // that it outlives its use.
  virtual Buffer adopt(Buffer memory, std::size_t bytes, MemoryUse use) = 0;
  // Gives the blocks that are kept for reuse back to the system, so that others can have the
  // memory. Waits for the work that uses them.
  virtual void give_back_reserve() = 0;
  virtual MemoryStats stats() const = 0;
  // Says which point of the run the code has reached, for MemoryStats::peak_point.
  virtual void reached(const MemoryPoint& /*point*/) {}
  virtual Device device() const = 0;
};

// Makes an allocator that keeps freed blocks by size class and hands them out again, so that
// repeated training steps ask the system for nothing. `limit` bounds what it takes from the system
// (0: no limit). `device` is the CPU; for a GPU use cuda::make_device_allocator.
std::shared_ptr<Allocator> make_caching_allocator(Device device, std::size_t limit = 0);

// Makes an allocator of CPU memory that counts as make_caching_allocator's does, size classes and
// reuse included, and takes nothing from the system: its blocks are dry. Blocks that are allocated
// on a plain Stream() are the exception: the host fills and reads those, so they are real, and zero
// when they are new. Dry blocks are for dry_stream().
std::shared_ptr<Allocator> make_dry_allocator();

// The stream of the CPU that a dry run computes on.
Stream dry_stream();

// Whether an address is that of a dry block: a number that stands for memory that does not exist.
// Whoever reads or writes there ends the process.
bool is_dry(const void* memory);

}  // namespace trireme
