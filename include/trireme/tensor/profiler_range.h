// What a thread does, by name, for profilers that understand NVTX (Nsight Systems).
#pragma once

#include <cstdint>
#include <string_view>

namespace trireme {

// Names what the calling thread does, and what it queues on GPUs, during the object's lifetime.
// Ranges of a thread are nested. Costs nothing where no profiler is attached or the program was
// built without CUDA.
class ProfilerRange {
 public:
  // Shown as "forward 3"; without a number (-1) as "optimizer".
  explicit ProfilerRange(std::string_view name, std::int64_t number = -1);
  ~ProfilerRange();
  ProfilerRange(const ProfilerRange&) = delete;
  ProfilerRange& operator=(const ProfilerRange&) = delete;
};

}  // namespace trireme
