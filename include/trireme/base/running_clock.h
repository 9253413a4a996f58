// Time in which this process ran.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <mutex>
#include <thread>
#include <vector>

#include "trireme/base/clock.h"

namespace trireme {

// A clock that stands still while the process is suspended: SIGSTOP, `scontrol suspend`, a paused
// machine. Somebody looks at it several times a second (ClockTicker); between two looks it goes on
// for at most kLongestGap. So a suspension is no hang, and no step takes the time of one. All
// members may be called from any thread, and each of them is a look.
class RunningClock {
 public:
  static constexpr double kLongestGap = 0.5;  // seconds

  // `clock` counts nanoseconds.
  explicit RunningClock(std::function<std::int64_t()> clock = &now_ns);

  void look() { seconds(); }
  // Seconds since construction.
  double seconds();
  // Seconds since a moment of `clock`, at or after construction.
  double seconds_since(std::int64_t begin_ns);

 private:
  struct Pause {
    std::int64_t begin_ns, end_ns;
  };
  std::int64_t look_now();  // with mutex_ held; returns the clock's time

  std::function<std::int64_t()> clock_;
  std::mutex mutex_;
  const std::int64_t origin_ns_;
  std::int64_t last_ns_;
  std::int64_t paused_ns_ = 0;
  std::vector<Pause> pauses_;  // the latest ones
};

// A thread that looks at a clock while it lives. Throws the Error of start_thread.
class ClockTicker {
 public:
  explicit ClockTicker(RunningClock& clock);
  ~ClockTicker() { stopping_ = true; }
  ClockTicker(const ClockTicker&) = delete;
  ClockTicker& operator=(const ClockTicker&) = delete;

 private:
  std::atomic<bool> stopping_ = false;
  std::jthread thread_;  // the last member, joined first
};

}  // namespace trireme
