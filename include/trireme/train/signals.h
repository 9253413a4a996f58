// SIGTERM and SIGUSR1 as a question that the training loop asks once a step.
#pragma once

namespace trireme {

// Built before any thread starts, so that all inherit the blocked signals. Slurm sends the one
// before it preempts a job, the other when a job asked for it with --signal.
class StopSignals {
 public:
  StopSignals();
  ~StopSignals();
  StopSignals(const StopSignals&) = delete;
  StopSignals& operator=(const StopSignals&) = delete;

  // Whether one has arrived at this process so far.
  bool arrived() const;

 private:
  int descriptor_;  // signalfd
  mutable bool arrived_ = false;
};

}  // namespace trireme
