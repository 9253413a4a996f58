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
    // operation that nobody waits for ends the row, and so do two that are under way at a time.
    explicit Operation(PromptWaits* kind)
        : kind_(kind), earlier_(kind ? kind->count_.exchange(0) : 0) {}

    bool expects_wait() const { return earlier_ >= kEnough; }
    void submitted(std::int64_t now_ns) { submitted_ns_ = now_ns; }
    void waited_for(std::int64_t now_ns) {
      const bool at_once = now_ns - submitted_ns_ < kAtOnceNs;
      if (kind_ && at_once) kind_->count_ = std::min(earlier_ + 1, kEnough);
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
