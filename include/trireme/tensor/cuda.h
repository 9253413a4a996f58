// CUDA as the host sees it: the few calls of its runtime that the program makes, behind a class, so
// that a test can replace it by a scripted one. No CUDA type appears here, and everything here
// exists in a build without CUDA too.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "trireme/tensor/allocator.h"
#include "trireme/tensor/device.h"

namespace trireme::cuda {

using StreamHandle = void*;  // a cudaStream_t; never the default stream
using EventHandle = void*;   // a cudaEvent_t
using GraphHandle = void*;   // a cudaGraphExec_t

struct Devices {
  int count = 0;
  std::string why_none;  // one line, if count is 0
};

struct DeviceProperties {
  std::string name;          // "NVIDIA H200"
  std::string uuid;          // of the GPU, or of its MIG instance; unique
  std::string pci_bus_id;    // "0000:19:00.0", as sysfs writes it
  int major = 0, minor = 0;  // compute capability
  std::size_t memory = 0;    // bytes
  int multiprocessors = 0;
  bool memory_pools = false;  // whether cudaMallocAsync works
  std::size_t l2 = 0;         // bytes of the cache that all multiprocessors share
};

struct MemoryInfo {
  std::size_t free = 0, total = 0;  // bytes
};

enum class CopyDirection { kToDevice, kToHost, kOnDevice };

// Thread-safe, like CUDA's runtime. A call that fails throws CudaError with CUDA's message.
// Functions that release something do not throw: a fault there is the device's, and the next call
// reports it.
class Runtime {
 public:
  virtual ~Runtime() = default;

  virtual Devices devices() = 0;      // does not throw; needs no driver
  virtual int driver_version() = 0;   // the newest CUDA that the driver knows, 13000 for 13.0;
                                      // 0 without a driver
  virtual int runtime_version() = 0;  // of this program's build; 0 without CUDA
  virtual DeviceProperties properties(int device) = 0;
  virtual bool can_access_peer(int device, int peer) = 0;
  virtual MemoryInfo memory_info(int device) = 0;
  // Sets the device of the calling thread. A thread that launches kernels or opens a library's
  // handle needs it.
  virtual void set_device(int device) = 0;

  // Allocates memory of the stream's device, ordered by the stream; nullptr if there is not enough.
  virtual void* allocate(std::size_t bytes, StreamHandle stream) = 0;
  virtual void free(void* memory, StreamHandle stream) noexcept = 0;
  // Waits for the device and returns all freed memory to it.
  virtual void release_freed(int device) noexcept = 0;
  // Allocates host memory that the device can reach; nullptr if there is not enough.
  virtual void* allocate_pinned(std::size_t bytes) = 0;
  virtual void free_pinned(void* memory) noexcept = 0;

  // Queued. The host memory of a copy should be pinned; for other memory the call waits.
  virtual void copy(void* to, const void* from, std::size_t bytes, CopyDirection direction,
                    StreamHandle stream) = 0;
  virtual void fill(void* memory, int byte, std::size_t bytes, StreamHandle stream) = 0;
  // Queued: a kernel of one thread stores the number at `from`, in device memory, to `to`, in
  // pinned memory. The host may read `to` at any time, as an atomic. A copy of eight bytes would go
  // to a copy engine, where it may queue behind long copies; its start and end cost more than it
  // moves. The calling thread's device must be the stream's.
  virtual void publish(std::int64_t* to, const std::int64_t* from, StreamHandle stream) = 0;

  virtual StreamHandle create_stream(int device, bool urgent) = 0;  // urgent: high priority
  virtual void destroy_stream(StreamHandle stream) noexcept = 0;    // queued work still runs
  virtual void synchronize(StreamHandle stream) = 0;
  // Work queued on `stream` from now on waits for the work that `event` marks; does nothing if the
  // event was never recorded.
  virtual void wait(StreamHandle stream, EventHandle event) = 0;

  virtual EventHandle create_event(int device) = 0;
  // An event for which the device records the time.
  virtual EventHandle create_timed_event(int device) = 0;
  // The time on the device from one timed event to another; both must be done.
  virtual double seconds_between(EventHandle begin, EventHandle end) = 0;
  virtual void destroy_event(EventHandle event) noexcept = 0;
  virtual void record(EventHandle event, StreamHandle stream) = 0;
  virtual bool done(EventHandle event) = 0;  // also true if never recorded
  virtual void synchronize_event(EventHandle event) = 0;

  // Work that the calling thread queues on `stream` from now on does not run: it becomes a graph.
  // So does work on streams that wait for it, until `stream` has waited for them again. Until
  // end_capture no memory of these streams is allocated or freed, and the host waits for none of
  // their work.
  virtual void begin_capture(StreamHandle stream) = 0;
  struct Graph {
    GraphHandle handle = nullptr;
    std::size_t operations = 0;
  };
  // Call it from the same thread. Even if it throws, the streams are as before the capture.
  virtual Graph end_capture(StreamHandle stream) = 0;
  virtual void launch(GraphHandle graph, StreamHandle stream) = 0;
  virtual void destroy_graph(GraphHandle graph) noexcept = 0;  // queued launches still run
};

// CUDA itself. In a build without CUDA, devices() says so and the other calls throw. Sets
// CUDA_DEVICE_MAX_CONNECTIONS to 32, the most, unless the environment has it: streams that share a
// connection to the device run in the order of its work.
std::shared_ptr<Runtime> make_runtime();

// Makes an allocator of stream-ordered device memory. Freed blocks are kept and handed out again as
// on the CPU. A block that goes to another stream makes that stream wait for the first one by an
// event; the host never waits. See record_use. Streams on which blocks were allocated must outlive
// the allocator. `limit` as on the CPU.
std::shared_ptr<Allocator> make_device_allocator(std::shared_ptr<Runtime> runtime, int device,
                                                 std::size_t limit = 0);

// Makes an allocator of pinned host memory, for copies. A freed block is handed out again when the
// copies that use it are done; copy() records them. Its device() is the CPU.
std::shared_ptr<Allocator> make_pinned_allocator(std::shared_ptr<Runtime> runtime, int device,
                                                 std::size_t limit = 0);

// Owns a stream on a device and destroys it with the object. Queued work still runs.
class OwnedStream {
 public:
  OwnedStream(std::shared_ptr<Runtime> runtime, int device, bool urgent = false);
  ~OwnedStream();
  OwnedStream(const OwnedStream&) = delete;
  OwnedStream& operator=(const OwnedStream&) = delete;

  const Stream& get() const { return stream_; }

 private:
  std::shared_ptr<Runtime> runtime_;
  Stream stream_;
};

// A point in a stream that other streams, or the host, can wait for.
class Event {
 public:
  Event(std::shared_ptr<Runtime> runtime, int device, bool timed = false);
  ~Event();
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;

  void record(const Stream& stream);           // marks the work queued there so far
  void make_wait(const Stream& stream) const;  // its later work waits for the mark
  bool done() const;                           // also true if never recorded
  void synchronize() const;                    // blocks the host
  // The time on the device since `earlier`. Both must be timed and done.
  double seconds_since(const Event& earlier) const;
  EventHandle native() const { return handle_; }

 private:
  std::shared_ptr<Runtime> runtime_;
  EventHandle handle_;
};

// What this program was built with; strings are empty for what it lacks.
struct BuildInfo {
  std::string toolkit;                // "13.0.88"
  std::string architectures;          // "90a", "80, 90a, 100, 120, 120 PTX"
  std::string cublaslt, cudnn, nccl;  // header versions
};
BuildInfo build_info();

// The oldest NCCL that the program uses, as ncclGetVersion writes 2.26.0. Only since 2.26 do
// operations of several communicators start on a GPU in the order of the host's calls
// (NCCL_LAUNCH_ORDER_IMPLICIT). Without that, communicators that overlap can wait for each other
// for ever.
inline constexpr int kOldestNccl = 22600;

// A library that is opened when it is first used, as found on this machine.
struct LibraryInfo {
  std::string name;         // "cuBLASLt"
  std::string version;      // "13.1.0"; empty if it was not found
  std::string path;         // the file, or the reason why it was not found
  std::string oldest = "";  // the oldest version that can be used, if the one found is older
};
// Returns cuBLASLt, cuDNN and NCCL, as far as this build uses them. Opens them; needs no driver.
std::vector<LibraryInfo> find_libraries();

// 13000 as "13.0".
std::string version_text(int cuda_version);

}  // namespace trireme::cuda
