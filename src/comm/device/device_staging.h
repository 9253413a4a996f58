// Carries tensors of a GPU over MPI: by way of pinned memory, or of shareable memory of the GPU
// where MPI takes its addresses, while the host continues (README.md).
#pragma once

#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "trireme/tensor/tensor.h"

#include "comm/device/device_work.h"
#include "comm/mpi/progress_engine.h"

namespace trireme {

// Large enough that the fixed cost of a copy and of a message does not matter (a link of 25 GB/s
// takes 0.16 ms for one chunk), and small enough that a tensor begins to arrive long before the
// last of it leaves.
inline constexpr std::size_t kChunkBytes = std::size_t{4} << 20;
// One is being copied to the host, one is in MPI, one is being copied back.
inline constexpr std::size_t kChunksInFlight = 3;

struct StagingOptions {
  std::size_t pinned_limit = 0;  // bytes of pinned memory; 0: no bound
  bool direct = false;           // MPI takes device addresses
  std::size_t chunk_bytes = kChunkBytes;
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
  // The task only sends and receives. If MPI is `direct`, its tensors are in shareable memory.
  bool messages = false;
};

// The task of an operation on device tensors. It may begin when the data are where MPI takes them.
// It runs the host part there, chunk by chunk, and is done when the result is on the device. While
// it lives it holds all memory.
class StagedTask : public Task {
 public:
  // An event after which a stream may go on, of a tensor that is only read and copied out already;
  // nullptr if that takes the host.
  virtual std::shared_ptr<cuda::Event> arrival() const = 0;
};

// One per device, shared by all communicators. Must be made by make_shared. Outlives the device's
// tensors. Thread-safe.
class DeviceStaging : public std::enable_shared_from_this<DeviceStaging> {
 public:
  // Throws CudaError.
  DeviceStaging(std::shared_ptr<cuda::Runtime> cuda, int device, const StagingOptions& options);

  // Starts an operation after the work that is on `ready` now, and queues what can be queued at
  // once. Nothing that is queued waits for the host. Chunks depend on the parts alone, so all ranks
  // cut alike. Throws CudaError, OutOfMemoryError, and the fault of an earlier operation.
  std::unique_ptr<StagedTask> stage(const Stream& ready, const std::vector<Part>& parts,
                                    HostPart host_part);

  // Throws the first fault of any operation, if there is one. Results that nobody has waited for
  // are invalid since that fault.
  void throw_fault() const;

  MemoryStats pinned_memory() const { return pinned_->stats(); }
  MemoryStats shareable_memory() const { return shareable_->stats(); }

 private:
  class StagedOperation;

  void keep_fault(std::exception_ptr fault);

  const std::shared_ptr<cuda::Runtime> cuda_;
  const int device_;
  const bool direct_;
  const std::size_t chunk_bytes_;
  const std::shared_ptr<Allocator> pinned_, shareable_;
  const cuda::OwnedStream out_;               // copies to the host, which wait only for `ready`
  const cuda::OwnedStream later_out_, back_;  // of later chunks, and to the device: never wait

  mutable std::mutex mutex_;
  std::exception_ptr fault_;
};

// Returns whether `parts` lie on a device. Throws InternalError unless all lie where the first one
// does, and, if that is a device, `ready` belongs to it.
bool on_one_device(const Stream& ready, const std::vector<Part>& parts);

// Throws the InternalError of a tensor on a device that communicator `name` was given, unless
// `may`.
void check_may_carry_devices(bool may, const std::string& name);

}  // namespace trireme
