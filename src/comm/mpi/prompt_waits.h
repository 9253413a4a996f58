// Whether a host waits at once for what it submits.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>

namespace trireme {

// Counts how often in a row a host has waited at once for the operations of one kind.
class PromptWaits {
 public:
  static constexpr std::int64_t kAtOnceNs = 20'000;
  static constexpr int kEnough = 4;

  // One operation, from before it is submitted to the host's wait, if there is one.
  class Operation {
   public:
    // `kind` may be nullptr: nothing is expected then. The count is 0 until the wait, so an
    // operation that nobody waits for ends the row, and nothing is expected of a second one that is
    // submitted before the wait for the first.
    explicit Operation(PromptWaits* kind)
        : kind_(kind), earlier_(kind ? kind->count_.exchange(0) : 0) {}

    bool expects_wait() const { return earlier_ >= kEnough; }
    void submitted(std::int64_t now_ns) { submitted_ns_ = now_ns; }
    // Returns whether that was at once, as expected.
    bool waited_for(std::int64_t now_ns) {
      if (!kind_ || now_ns - submitted_ns_ >= kAtOnceNs) return false;
      kind_->count_ = std::min(earlier_ + 1, kEnough);
      return expects_wait();
    }

   private:
    PromptWaits* kind_;
    int earlier_;
    std::int64_t submitted_ns_ = 0;
  };

 private:
  std::atomic<int> count_ = 0;
};

}  // namespace trireme
