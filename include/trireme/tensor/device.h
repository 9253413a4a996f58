// Where memory lives and work runs.
#pragma once

#include <string>

namespace trireme {

namespace cuda {
class Runtime;
}

enum class DeviceKind { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;

  bool operator==(const Device&) const = default;
  std::string to_string() const;  // "cpu", "cuda:0"
};

// An ordered queue of work on a device. Work on the CPU is done when its call returns, so a CPU
// stream is always idle. A CUDA stream is a cudaStream_t that another object owns
// (cuda::OwnedStream).
class Stream {
 public:
  explicit Stream(Device device = {}, void* native = nullptr, cuda::Runtime* runtime = nullptr)
      : device_(device), native_(native), runtime_(runtime) {}

  Device device() const { return device_; }
  void* native() const { return native_; }  // cudaStream_t, or nullptr on the CPU
  cuda::Runtime& runtime() const;           // only of a CUDA stream
  // Blocks the host until all work queued so far is done. Throws CudaError if any of it failed.
  void synchronize() const;

 private:
  Device device_;
  void* native_;
  cuda::Runtime* runtime_;
};

}  // namespace trireme
