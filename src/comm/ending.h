// The ways in which a process of the job ends.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <string>

namespace trireme {

inline constexpr double kFaultSeconds = 10.0;  // from a fault to the end, at most

// Ends the process with `status` unless it is called off within the time. MPI's last calls may
// never return; a thread of its own needs no signal handler.
class ExitTimer {
 public:
  ExitTimer(double seconds, int status);
  void call_off() { *off_ = true; }

 private:
  std::shared_ptr<std::atomic<bool>> off_;
};

// MPI_Abort with `status` under a deadline, then _exit.
[[noreturn]] void abort_job(int status);

// Calls `act`, which ends what a fault has left behind and may never return. Where it does not
// within kFaultSeconds, the job ends with kHangOrLostRank and a line that starts with `who`.
void end_after_fault(const std::string& who, const std::function<void()>& act);

// MPI_Finalize under a deadline of one second, then exit. A hang or a crash in there ends the
// process with the run's own status too. All ranks have passed a last barrier before.
[[noreturn]] void finish_job(int status);

// While one lives, a call of exit() is a fault: it ends the whole job with kHangOrLostRank and a
// line that starts with `who`.
class ExitGuard {
 public:
  explicit ExitGuard(std::string who);
  ~ExitGuard() { call_off(); }
  ExitGuard(const ExitGuard&) = delete;
  ExitGuard& operator=(const ExitGuard&) = delete;
  void call_off() { state_->armed = false; }

  struct State {
    std::atomic<bool> armed = true;
    std::string who;
  };

 private:
  State* state_;  // never freed: the handler cannot be taken back
};

}  // namespace trireme
