// Where memory lives and work runs.
#pragma once

#include <string>

namespace trireme {

enum class DeviceKind { kCpu, kCuda };

struct Device {
  DeviceKind kind = DeviceKind::kCpu;
  int index = 0;

  bool operator==(const Device&) const = default;
  std::string to_string() const;  // "cpu", "cuda:0"
};

// An ordered queue of work on a device. Work on the CPU is done when its call returns, so a CPU
// stream is always idle; a CUDA stream is a cudaStream_t.
class Stream {
 public:
  explicit Stream(Device device = {}, void* native = nullptr) : device_(device), native_(native) {}

  Device device() const { return device_; }
  void* native() const { return native_; }  // cudaStream_t, or nullptr on the CPU
  // Blocks the host until all work queued so far is done.
  void synchronize() const;

 private:
  Device device_;
  void* native_;
};

}  // namespace trireme
