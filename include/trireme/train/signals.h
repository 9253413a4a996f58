// SIGTERM and SIGUSR1, which the training loop polls once per step.
#pragma once

namespace trireme {

// Construct it before any thread starts, so that all threads inherit the blocked signals. Slurm
// sends SIGTERM before it preempts a job, and SIGUSR1 when a job asked for it with --signal.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Returns whether one of them has arrived at this process so far.
  bool arrived() const;

 private:
  int descriptor_;  // signalfd
  mutable bool arrived_ = false;
};

}  // namespace trireme
