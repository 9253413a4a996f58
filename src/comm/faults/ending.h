// The ways in which a process of the job ends.
#pragma once

#include <array>
#include <atomic>
#include <functional>
#include <memory>
#include <string>

namespace trireme {

inline constexpr double kFaultSeconds = 10.0;  // from a fault to the end, at most

// Ends the process with `status` unless call_off() is called within the time. MPI's last calls may
// never return. It is a separate thread; where the system gives none it is an alarm, of which a
// process has one: the last one set.
class ExitTimer {
 public:
  ExitTimer(double seconds, int status);
  void call_off();

 private:
  std::shared_ptr<std::atomic<bool>> off_;
  bool by_alarm_ = false;
};

// While it lives, abort(), exit() and invalid accesses to memory end the process with `line` on
// standard error and `status`: MPI and the libraries below it do all of these where they get no
// thread, memory or file while they start. There is one at a time.
class StartGuard {
 public:
  StartGuard(const std::string& line, int status);
  ~StartGuard();
  StartGuard(const StartGuard&) = delete;
  StartGuard& operator=(const StartGuard&) = delete;

 private:
  std::array<void (*)(int), 3> before_;  // the handlers
};

// Ends the process, and through mpiexec the job, with `status` while MPI cannot be called: before
// it has started.
[[noreturn]] void end_before_mpi(int status);

// MPI_Abort with `status` under a deadline, then _exit.
[[noreturn]] void abort_job(int status);

// Calls `act`, which cleans up after a fault and may never return. If it does not return within
// kFaultSeconds, the job ends with kHangOrLostRank and a line that starts with `who`.
void end_after_fault(const std::string& who, const std::function<void()>& act);

// MPI_Finalize under a deadline of one second, then exit. If MPI_Finalize hangs or crashes, the
// process still ends with the run's own status. All ranks must have passed a last barrier before.
[[noreturn]] void finish_job(int status);

// While an ExitGuard lives, a call of exit() is a fault: it ends the whole job with kHangOrLostRank
// and a line that starts with `who`.
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
  State* state_;  // never freed, because the handler cannot be removed
};

}  // namespace trireme
