// CUDA's own runtime.
#include <algorithm>
#include <cctype>
#include <cstdint>
#include <cstdlib>

#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/tensor/cuda.h"

#include "publish_kernel.h"

namespace trireme::cuda {
namespace {

cudaStream_t stream_of(StreamHandle handle) {
  return static_cast<cudaStream_t>(handle);
}
cudaEvent_t event_of(EventHandle handle) {
  return static_cast<cudaEvent_t>(handle);
}

[[noreturn]] void fail(cudaError_t status, const char* call) {
  cudaGetLastError();  // clears the error, since it is reported here; a fatal one comes back
  throw CudaError(
      fmt::format("{}: {} ({})", call, cudaGetErrorString(status), cudaGetErrorName(status)));
}

void check(cudaError_t status, const char* call) {
  if (status != cudaSuccess) [[unlikely]]
    fail(status, call);
}

#define TRIREME_CUDA(call, ...) check(call(__VA_ARGS__), #call)

// Sets the thread's device, and restores the earlier one in the destructor.
class OnDevice {
 public:
  explicit OnDevice(int device) {
    TRIREME_CUDA(cudaGetDevice, &before_);
    if (before_ == device) return;
    TRIREME_CUDA(cudaSetDevice, device);
    changed_ = true;
  }
  ~OnDevice() {
    if (changed_) cudaSetDevice(before_);
  }
  OnDevice(const OnDevice&) = delete;
  OnDevice& operator=(const OnDevice&) = delete;

 private:
  int before_ = 0;
  bool changed_ = false;
};

// While it lives, a capturing thread may make calls that are forbidden during a capture.
class AlsoWhileCapturing {
 public:
  AlsoWhileCapturing() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  ~AlsoWhileCapturing() { cudaThreadExchangeStreamCaptureMode(&mode_); }
  AlsoWhileCapturing(const AlsoWhileCapturing&) = delete;
  AlsoWhileCapturing& operator=(const AlsoWhileCapturing&) = delete;

 private:
  cudaStreamCaptureMode mode_ = cudaStreamCaptureModeRelaxed;
};

class CudaRuntime : public Runtime {
 public:
  Devices devices() override {
    Devices found;
    const cudaError_t status = cudaGetDeviceCount(&found.count);
    if (status == cudaSuccess && found.count > 0) return found;
    cudaGetLastError();
    found.count = 0;
    const int driver = driver_version();
    if (driver == 0) {
      found.why_none = "no NVIDIA driver is installed";
    } else if (status == cudaErrorInsufficientDriver) {
      found.why_none = fmt::format("the driver knows CUDA {}, this program was built with {}",
                                   version_text(driver), version_text(runtime_version()));
    } else {
      found.why_none = status == cudaSuccess ? "no GPU is visible" : cudaGetErrorString(status);
    }
    return found;
  }

  int driver_version() override {
    int version = 0;
    return cudaDriverGetVersion(&version) == cudaSuccess ? version : 0;
  }

  int runtime_version() override { return CUDART_VERSION; }

  DeviceProperties properties(int device) override {
    cudaDeviceProp given{};
    TRIREME_CUDA(cudaGetDeviceProperties, &given, device);
    char bus[32] = {};
    TRIREME_CUDA(cudaDeviceGetPCIBusId, bus, static_cast<int>(sizeof bus), device);
    DeviceProperties found;
    found.name = given.name;
    for (char byte : given.uuid.bytes) {
      found.uuid += fmt::format("{:02x}", static_cast<unsigned char>(byte));
    }
    found.pci_bus_id = bus;
    std::transform(found.pci_bus_id.begin(), found.pci_bus_id.end(), found.pci_bus_id.begin(),
                   [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
    found.major = given.major;
    found.minor = given.minor;
    found.memory = given.totalGlobalMem;
    found.l2 = static_cast<std::size_t>(given.l2CacheSize);
    found.multiprocessors = given.multiProcessorCount;
    found.memory_pools = given.memoryPoolsSupported != 0;
    return found;
  }

  bool can_access_peer(int device, int peer) override {
    int can = 0;
    TRIREME_CUDA(cudaDeviceCanAccessPeer, &can, device, peer);
    return can != 0;
  }

  MemoryInfo memory_info(int device) override {
    const OnDevice on(device);
    MemoryInfo memory;
    TRIREME_CUDA(cudaMemGetInfo, &memory.free, &memory.total);
    return memory;
  }

  void set_device(int device) override { TRIREME_CUDA(cudaSetDevice, device); }

  // Without a stream the memory is shareable (cuda_shareable.h).
  void* allocate(std::size_t bytes, StreamHandle stream) override {
    const AlsoWhileCapturing permitted;
    void* memory = nullptr;
    if (stream == nullptr) {
      return enough(cudaMalloc(&memory, bytes), "cudaMalloc") ? memory : nullptr;
    }
    return enough(cudaMallocAsync(&memory, bytes, stream_of(stream)), "cudaMallocAsync") ? memory
                                                                                         : nullptr;
  }

  void free(void* memory, StreamHandle stream) noexcept override {
    stream == nullptr ? cudaFree(memory) : cudaFreeAsync(memory, stream_of(stream));
  }

  void release_freed(int device) noexcept override {
    try {
      const OnDevice on(device);
      cudaMemPool_t pool = nullptr;
      TRIREME_CUDA(cudaDeviceSynchronize);
      TRIREME_CUDA(cudaDeviceGetMemPool, &pool, device);
      TRIREME_CUDA(cudaMemPoolTrimTo, pool, std::size_t{0});
    } catch (const Error&) {
    }
  }

  void* allocate_pinned(std::size_t bytes) override {
    void* memory = nullptr;
    return enough(cudaHostAlloc(&memory, bytes, cudaHostAllocPortable), "cudaHostAlloc") ? memory
                                                                                         : nullptr;
  }

  void free_pinned(void* memory) noexcept override { cudaFreeHost(memory); }

  void copy(void* to, const void* from, std::size_t bytes, CopyDirection direction,
            StreamHandle stream) override {
    const auto kind = direction == CopyDirection::kToDevice ? cudaMemcpyHostToDevice
                      : direction == CopyDirection::kToHost ? cudaMemcpyDeviceToHost
                                                            : cudaMemcpyDeviceToDevice;
    TRIREME_CUDA(cudaMemcpyAsync, to, from, bytes, kind, stream_of(stream));
  }

  void fill(void* memory, int byte, std::size_t bytes, StreamHandle stream) override {
    TRIREME_CUDA(cudaMemsetAsync, memory, byte, bytes, stream_of(stream));
  }

  // Memory of cudaHostAlloc has one address for the host and the device. The first launch of a
  // kernel loads it.
  void publish(std::int64_t* to, const std::int64_t* from, StreamHandle stream) override {
    const AlsoWhileCapturing permitted;
    void* arguments[] = {&to, &from};
    TRIREME_CUDA(cudaLaunchKernel, publish_kernel(), dim3(1), dim3(1), arguments, std::size_t{0},
                 stream_of(stream));
  }

  StreamHandle create_stream(int device, bool urgent) override {
    const OnDevice on(device);
    int lowest = 0, highest = 0;
    TRIREME_CUDA(cudaDeviceGetStreamPriorityRange, &lowest, &highest);
    cudaStream_t stream = nullptr;
    TRIREME_CUDA(cudaStreamCreateWithPriority, &stream, cudaStreamNonBlocking,
                 urgent ? highest : lowest);
    return stream;
  }

  void destroy_stream(StreamHandle stream) noexcept override {
    cudaStreamDestroy(stream_of(stream));
  }

  void synchronize(StreamHandle stream) override {
    TRIREME_CUDA(cudaStreamSynchronize, stream_of(stream));
  }

  void wait(StreamHandle stream, EventHandle event) override {
    TRIREME_CUDA(cudaStreamWaitEvent, stream_of(stream), event_of(event), 0u);
  }

  EventHandle create_event(int device) override {
    const OnDevice on(device);
    cudaEvent_t event = nullptr;
    TRIREME_CUDA(cudaEventCreateWithFlags, &event, cudaEventDisableTiming);
    return event;
  }

  EventHandle create_timed_event(int device) override {
    const OnDevice on(device);
    cudaEvent_t event = nullptr;
    TRIREME_CUDA(cudaEventCreateWithFlags, &event, cudaEventDefault);
    return event;
  }

  double seconds_between(EventHandle begin, EventHandle end) override {
    float milliseconds = 0.0f;
    TRIREME_CUDA(cudaEventElapsedTime, &milliseconds, event_of(begin), event_of(end));
    return static_cast<double>(milliseconds) * 1e-3;
  }

  void destroy_event(EventHandle event) noexcept override { cudaEventDestroy(event_of(event)); }

  void record(EventHandle event, StreamHandle stream) override {
    TRIREME_CUDA(cudaEventRecord, event_of(event), stream_of(stream));
  }

  bool done(EventHandle event) override {
    const cudaError_t status = cudaEventQuery(event_of(event));
    if (status == cudaErrorNotReady) {
      cudaGetLastError();
      return false;
    }
    check(status, "cudaEventQuery");
    return true;
  }

  void synchronize_event(EventHandle event) override {
    TRIREME_CUDA(cudaEventSynchronize, event_of(event));
  }

  // Thread-local mode: forbidden calls fail only in this thread, and other threads are not
  // affected.
  void begin_capture(StreamHandle stream) override {
    TRIREME_CUDA(cudaStreamBeginCapture, stream_of(stream), cudaStreamCaptureModeThreadLocal);
  }

  Graph end_capture(StreamHandle stream) override {
    cudaGraph_t captured = nullptr;
    TRIREME_CUDA(cudaStreamEndCapture, stream_of(stream), &captured);
    const std::unique_ptr<CUgraph_st, cudaError_t (*)(cudaGraph_t)> owner(captured,
                                                                          cudaGraphDestroy);
    Graph graph;
    TRIREME_CUDA(cudaGraphGetNodes, captured, nullptr, &graph.operations);
    cudaGraphExec_t made = nullptr;
    // With this flag, communication keeps the priority of its stream.
    TRIREME_CUDA(cudaGraphInstantiate, &made, captured, cudaGraphInstantiateFlagUseNodePriority);
    graph.handle = made;
    return graph;
  }

  void launch(GraphHandle graph, StreamHandle stream) override {
    TRIREME_CUDA(cudaGraphLaunch, static_cast<cudaGraphExec_t>(graph), stream_of(stream));
  }

  void destroy_graph(GraphHandle graph) noexcept override {
    cudaGraphExecDestroy(static_cast<cudaGraphExec_t>(graph));
  }

 private:
  static bool enough(cudaError_t status, const char* call) {
    if (status == cudaErrorMemoryAllocation) {
      cudaGetLastError();
      return false;
    }
    check(status, call);
    return true;
  }
};

}  // namespace

std::shared_ptr<Runtime> make_runtime() {
  setenv("CUDA_DEVICE_MAX_CONNECTIONS", "32", /*overwrite=*/0);
  return std::make_shared<CudaRuntime>();
}

}  // namespace trireme::cuda
