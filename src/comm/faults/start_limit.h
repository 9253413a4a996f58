// The limit of the start.
#pragma once

#include <atomic>
#include <thread>

namespace trireme {

// MPI starts when all ranks do, and nothing but this limit watches until the watchdog can. If it
// lives for longer than $TRIREME_MPI_INIT_LIMIT seconds (300; time in which the process ran), it
// ends the process by a line and kHangOrLostRank. Throws ConfigError if the variable is no number.
class StartLimit {
 public:
  StartLimit();
  ~StartLimit() { over_ = true; }
  StartLimit(const StartLimit&) = delete;
  StartLimit& operator=(const StartLimit&) = delete;

 private:
  std::atomic<bool> over_ = false;
  std::jthread thread_;  // the last member, joined first
};

}  // namespace trireme
