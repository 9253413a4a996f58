// The signals that end a run with a checkpoint.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <thread>
#include <vector>

namespace trireme {

// SIGTERM (Slurm before it preempts a job), SIGINT (a person), SIGUSR1 (asked for with --signal),
// SIGUSR2 and SIGXCPU (other schedulers). Those that are ignored are left out: nohup and shells
// that start a job in the background ask for that.
std::vector<int> stop_signals();

// Awaits the stop signals. Construct it before any other thread starts, so that all threads inherit
// the blocked signals. A second SIGINT, at least a second after the first, ends the process at once
// with status 130. Throws the Error of start_thread, and then leaves the signals as they were.
class StopSignals {
 public:
  // What ends the process where nobody asks for a signal: a file is waited for, or a library
  // computes. Called on a thread of its own, with the number.
  using End = std::function<void(int)>;
  // After SIGINT at least, a person waits; others come before a kill, mostly 30 s later.
  static constexpr double kInterruptPatience = 3.0, kPatience = 20.0;  // seconds

  explicit StopSignals(End unheard = {});
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // The number of the first that has arrived at this process; 0 while none has.
  int arrived() const {
    const int number = arrived_;
    if (number != 0) is_heard_ = true;
    return number;
  }

  // A step begins that may be the last, and takes about so many seconds; 0: not known. From now on
  // the first signal that arrives is told in a line, unless steps take less than two seconds.
  void step_begins(double seconds) const;

 private:
  void wait();
  int next_signal(double patience) const;
  void tell(int number) const;

  const std::vector<int> numbers_;
  const End unheard_;
  std::atomic<bool> ending_ = false;
  std::atomic<int> arrived_ = 0;
  mutable std::atomic<bool> is_heard_ = false;     // somebody has asked since then
  mutable std::atomic<std::int64_t> step_ns_ = 0;  // when the step began; 0: nothing is told
  mutable std::atomic<double> step_seconds_ = 0.0;
  std::jthread thread_;  // the last member, joined first; none where there is nothing to await
};

// Which signal it is and who usually sends it: "by SIGINT (as by Ctrl-C)".
std::string words_on_sender(int number);

// The words of the line of StopSignals::step_begins; so many seconds are left of the step, below 1:
// not known.
std::string words_on_stop(const std::string& signal, double seconds);

}  // namespace trireme
