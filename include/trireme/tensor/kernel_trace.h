// What a GPU did and when, kernel by kernel, as CUPTI records it. No CUPTI type appears here, and
// everything here exists in a build without CUPTI too.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace trireme::cuda {

// A kernel, a copy or a fill. Times are of one clock with an arbitrary origin.
struct DeviceWork {
  std::string name;  // a kernel's as the compiler mangled it; "copy to device", "fill"
  bool kernel = false;
  std::int64_t begin_ns = 0, end_ns = 0;
  double bytes = 0.0;           // that it read and wrote in the GPU's memory; 0: not known
  std::uint64_t operation = 0;  // the number of begin_operation; 0: of none, or not known
};

struct KernelRecords {
  std::vector<DeviceWork> work;  // in no order
  std::uint64_t lost = 0;        // records that CUPTI dropped, or gave away unfinished
};

// Records what is queued from its making on, of all streams of this process, until its end. A
// process has at most one at a time. While it lives, each kernel costs a little more.
class KernelTrace {
 public:
  virtual ~KernelTrace() = default;

  // Returns what was recorded since the last call. What shall be in it must be done: the caller has
  // waited for it. Throws CudaError.
  virtual KernelRecords take() = 0;

  // What the calling thread queues until end_operation belongs to this one. One within another has
  // what is queued until its own end.
  virtual void begin_operation(std::uint64_t number) = 0;
  virtual void end_operation() = 0;
};

// Opens CUPTI. Throws CudaError, one line, where it is not found, is of another major version than
// this program's, lacks a function, is held by another tool, or is not part of this build.
std::unique_ptr<KernelTrace> open_kernel_trace();

}  // namespace trireme::cuda
