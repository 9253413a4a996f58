#include "trireme/base/running_clock.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include <unistd.h>

#include "trireme/base/thread.h"

namespace trireme {
namespace {

constexpr useconds_t kTickMicroseconds = 100'000;
constexpr auto kLongestGapNs = static_cast<std::int64_t>(RunningClock::kLongestGap * 1e9);
constexpr std::size_t kPausesKept = 64;  // nothing waits across more of them

}  // namespace

RunningClock::RunningClock(std::function<std::int64_t()> clock)
    : clock_(std::move(clock)), origin_ns_(clock_()), last_ns_(origin_ns_) {}

std::int64_t RunningClock::look_now() {
  const std::int64_t now = clock_();
  if (now - last_ns_ > kLongestGapNs) {
    if (pauses_.size() == kPausesKept) pauses_.erase(pauses_.begin());
    pauses_.push_back({last_ns_ + kLongestGapNs, now});
    paused_ns_ += now - pauses_.back().begin_ns;
  }
  return last_ns_ = std::max(last_ns_, now);
}

double RunningClock::seconds() {
  const std::lock_guard lock(mutex_);
  return static_cast<double>(look_now() - origin_ns_ - paused_ns_) * 1e-9;
}

double RunningClock::seconds_since(std::int64_t begin_ns) {
  const std::lock_guard lock(mutex_);
  std::int64_t ns = look_now() - begin_ns;
  for (const Pause& pause : pauses_) {
    ns -= std::max<std::int64_t>(0, pause.end_ns - std::max(begin_ns, pause.begin_ns));
  }
  return static_cast<double>(ns) * 1e-9;
}

ClockTicker::ClockTicker(RunningClock& clock)
    : thread_(start_thread("the clock", [this, &clock] {
        while (!stopping_) {
          clock.look();
          usleep(kTickMicroseconds);
        }
      })) {}

}  // namespace trireme
