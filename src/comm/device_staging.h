// Carries tensors of a GPU over MPI: by way of pinned memory, in stream order, while the host
// continues (README.md).
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

#include "trireme/tensor/tensor.h"

#include "device_work.h"
#include "progress_engine.h"

namespace trireme {

// Large enough that the fixed cost of a copy and of a message does not matter (a link of 25 GB/s
// takes 0.16 ms for one chunk), and small enough that a tensor begins to arrive long before the
// last of it leaves.
inline constexpr std::size_t kChunkBytes = std::size_t{4} << 20;
// One is being copied to the host, one is in MPI, one is being copied back.
inline constexpr std::size_t kChunksInFlight = 3;

struct StagingOptions {
  std::size_t pinned_limit = 0;  // bytes of pinned memory; 0: no bound
  // Streams wait for a word that the host writes, if the device can do so. Otherwise the host
  // queues the copy back when it may run, and waits where a stream should.
  bool stream_waits = true;
  bool direct = false;  // MPI takes device addresses
  std::size_t chunk_bytes = kChunkBytes;
  int connections = 32;  // connections to the device; more streams than that share them
};

// What an operation does with a tensor.
struct Part {
  enum class Use { kRead, kWrite, kBoth };
  Tensor& tensor;
  Use use;
  // The number of equal strips that follow one another in the tensor. Elements at the same position
  // of the strips belong together, and operations treat all positions alike. All parts of an
  // operation have strips of the same length.
  int strips = 1;
};

// The host part of an operation, and how it travels.
struct HostPart {
  // Makes the host's task for the same range of every strip. It gets the tensors of that range,
  // packed.
  std::function<std::unique_ptr<Task>(const Tensors&)> make;
  bool whole = false;  // the bits of the result depend on where a tensor begins and ends
  // The task only sends and receives. If MPI is `direct`, it does so on device memory.
  bool messages = false;
};

// The task of an operation on device tensors. It may begin when the data are in pinned memory. It
// runs the host part there, chunk by chunk, and is done when the result is on the device. While it
// lives it holds all memory. If it is dropped before its end, it releases the streams that wait for
// it.
class StagedTask : public Task {
 public:
  // The event of the result's arrival, for a stream to wait for; nullptr if it is not queued yet.
  virtual std::shared_ptr<cuda::Event> arrival() const = 0;
};

// One per device, shared by all communicators. Must be made by make_shared. Outlives the device's
// tensors. Thread-safe.
class DeviceStaging : public std::enable_shared_from_this<DeviceStaging> {
 public:
  // Throws CudaError.
  DeviceStaging(std::shared_ptr<cuda::Runtime> cuda, int device, const StagingOptions& options);

  // Starts an operation of lane `key` after the work that is on `ready` now, and queues what can be
  // queued at once. Chunks depend on the parts alone, so all ranks cut alike. Throws CudaError,
  // OutOfMemoryError, and the fault of an earlier operation.
  std::unique_ptr<StagedTask> stage(const LaneKey& key, const Stream& ready,
                                    const std::vector<Part>& parts, HostPart host_part);

  // Throws the first fault of any operation, if there is one. Results that only streams have waited
  // for are invalid since that fault.
  void throw_fault() const;

  // From now on no stream waits for an operation of this device; results are invalid.
  void release_streams();

  MemoryStats pinned_memory() const { return pinned_->stats(); }

 private:
  class StagedOperation;

  const Stream& stream_back(const LaneKey& key);
  // Whether each stream has a connection of its own, so that none is queued behind another's word.
  bool streams_are_apart() const;
  void keep_fault(std::exception_ptr fault);
  void add_word(std::uint32_t* word);
  void release_word(std::uint32_t* word);  // releases the streams that wait for it

  const std::shared_ptr<cuda::Runtime> cuda_;
  const int device_;
  const bool direct_;
  const std::size_t chunk_bytes_;
  const std::size_t connections_;
  const std::shared_ptr<Allocator> pinned_;
  const cuda::OwnedStream out_;  // copies to the host, which wait only for `ready`
  // Copies that never wait: of later chunks to the host, and of all chunks but the last to the
  // device.
  const cuda::OwnedStream later_out_, later_in_;
  const bool stream_waits_;

  mutable std::mutex mutex_;
  std::map<LaneKey, cuda::OwnedStream> back_;
  std::set<std::uint32_t*> words_;  // not written yet
  bool released_ = false;
  std::exception_ptr fault_;
};

// Returns whether `parts` lie on a device. Throws InternalError unless all lie where the first one
// does, and, if that is a device, `ready` belongs to it.
bool on_one_device(const Stream& ready, const std::vector<Part>& parts);

// Throws the InternalError of a tensor on a device that communicator `name` was given, unless
// `may`.
void check_may_carry_devices(bool may, const std::string& name);

}  // namespace trireme
