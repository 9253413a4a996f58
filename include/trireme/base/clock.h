// Monotonic time.
#pragma once

#include <cstdint>

namespace trireme {

// Nanoseconds since an arbitrary origin (CLOCK_MONOTONIC; the same for all processes of a host).
std::int64_t now_ns();

// Seconds since this process was started, before any exec. The start is known to 10 ms; differences
// between two calls are exact. 0 if the system does not say.
double process_seconds();

// Seconds that the calling thread has computed: waiting for a processor that others have does not
// count.
double thread_seconds();

// Seconds since construction or the last restart.
class Stopwatch {
 public:
  Stopwatch() : start_(now_ns()) {}
  double seconds() const { return static_cast<double>(now_ns() - start_) * 1e-9; }
  void restart() { start_ = now_ns(); }

 private:
  std::int64_t start_;
};

}  // namespace trireme
