// The pace of polling for messages.
#pragma once

#include <algorithm>
#include <cstdint>

#include <sched.h>
#include <unistd.h>

#include "trireme/base/clock.h"

namespace trireme {

// Between two polls it yields for a while after something moved, then sleeps for longer and longer.
// A thread that only yields takes a core from the ranks that it waits for where ranks share cores.
class Backoff {
 public:
  struct Pace {
    std::int64_t yield_ns;
    useconds_t longest_nap_us;
  };
  static constexpr Pace kBesideComputation = {50'000, 200};
  // Nothing else is to be done, and a nap is short beside what the wait has taken already.
  static constexpr Pace kWhileWaiting = {2'000'000, 50};

  explicit Backoff(Pace pace) : pace_(pace) {}

  // `moved`: whether the poll that began at `begin` has moved something. MPI may move data inside a
  // test without telling us, and then the test takes long.
  void step(bool moved, std::int64_t begin) {
    const std::int64_t now = now_ns();
    if (moved || now - begin > kBusyTestNs) {
      last_ns_ = now;
      nap_us_ = kShortestNapUs;
    } else if (now - last_ns_ < pace_.yield_ns) {
      sched_yield();
    } else {
      usleep(nap_us_);
      nap_us_ = std::min(nap_us_ * 2, pace_.longest_nap_us);
    }
  }

 private:
  static constexpr std::int64_t kBusyTestNs = 4'000;
  static constexpr useconds_t kShortestNapUs = 20;

  Pace pace_;
  std::int64_t last_ns_ = now_ns();
  useconds_t nap_us_ = kShortestNapUs;
};

}  // namespace trireme
