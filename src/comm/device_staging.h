// How tensors of a GPU travel over MPI: by way of pinned memory, in the order of streams, while the
// host goes on (README.md).
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "trireme/tensor/tensor.h"

#include "device_work.h"
#include "progress_engine.h"

namespace trireme {

// Large enough that what a copy and a message cost by their number does not count (a link of 25
// GB/s is 0.16 ms at one), small enough that a tensor begins to arrive long before the last of it
// leaves.
inline constexpr std::size_t kChunkBytes = std::size_t{4} << 20;
// One on its way to the host, one in MPI, one on its way back.
inline constexpr std::size_t kChunksInFlight = 3;

struct StagingOptions {
  std::size_t pinned_limit = 0;  // bytes of pinned memory; 0: no bound
  // Streams wait for a word that the host writes, where the device can; else the host queues the
  // copy back when it may be made, and waits where a stream should.
  bool stream_waits = true;
  bool direct = false;  // MPI takes addresses of the device
  std::size_t chunk_bytes = kChunkBytes;
  int connections = 32;  // of the device, which its streams share where they are more
};

// What an operation does with a tensor.
struct Part {
  enum class Use { kRead, kWrite, kBoth };
  Tensor& tensor;
  Use use;
  // Equal strips side by side, whose elements at one place belong together, whatever the place: all
  // parts of an operation have strips of one length.
  int strips = 1;
};

// How an operation travels.
struct HostPart {
  // The host's task for the same range of every strip, whose tensors it is given, packed.
  std::function<std::unique_ptr<Task>(const Tensors&)> make;
  bool whole = false;     // the task's bits depend on where a tensor begins and ends
  bool messages = false;  // it only sends and receives: where MPI is `direct`, it does so on the
                          // device's own memory
};

// The task of an operation on device tensors: when the data are in pinned memory it may begin; it
// does the host's part there, chunk by chunk, and is done when the result is on the device. While
// it lives it holds all memory; dropped before its end it lets go of the streams that wait for it.
class StagedTask : public Task {
 public:
  // Of the result, for a stream to wait for; nullptr where it is not queued yet.
  virtual std::shared_ptr<cuda::Event> arrival() const = 0;
};

// Of one device, shared by all communicators; made by make_shared, outlives the device's tensors.
// Thread-safe.
class DeviceStaging : public std::enable_shared_from_this<DeviceStaging> {
 public:
  // Throws CudaError.
  DeviceStaging(std::shared_ptr<cuda::Runtime> cuda, int device, const StagingOptions& options);

  // Queues what can be queued at once of an operation of lane `key` that may begin after what is on
  // `ready` by now. Chunks follow from the parts alone, so that all ranks cut alike. Throws
  // CudaError, OutOfMemoryError, and an earlier operation's fault.
  std::unique_ptr<StagedTask> stage(const LaneKey& key, const Stream& ready,
                                    const std::vector<Part>& parts, HostPart host_part);

  // Throws the first fault that an operation has met, if any: what only streams have waited for is
  // worth nothing since.
  void throw_fault() const;

  // From now on no stream waits for an operation of this device: results are worthless.
  void release_streams();

  MemoryStats pinned_memory() const { return pinned_->stats(); }

 private:
  class StagedOperation;

  const Stream& stream_back(const LaneKey& key);
  // Whether each stream has a connection of its own, so that none stands behind another's word.
  bool streams_are_apart() const;
  void keep_fault(std::exception_ptr fault);
  void add_word(std::uint32_t* word);
  void release_word(std::uint32_t* word);  // the streams that wait for it go on

  const std::shared_ptr<cuda::Runtime> cuda_;
  const int device_;
  const bool direct_;
  const std::size_t chunk_bytes_;
  const std::size_t connections_;
  const std::shared_ptr<Allocator> pinned_;
  const cuda::OwnedStream out_;  // copies to the host, which wait for nothing but `ready`
  // Copies that may be made at once: to the host of later chunks, to the device of all but the
  // last.
  const cuda::OwnedStream later_out_, later_in_;
  const bool stream_waits_;

  mutable std::mutex mutex_;
  std::map<LaneKey, cuda::OwnedStream> back_;
  std::set<std::uint32_t*> words_;  // not written yet
  bool released_ = false;
  std::exception_ptr fault_;
};

// Throws InternalError unless `parts` all lie where the first one does, and, where that is a
// device, `ready` belongs to it. True: they lie on a device.
bool on_one_device(const Stream& ready, const std::vector<Part>& parts);

}  // namespace trireme
