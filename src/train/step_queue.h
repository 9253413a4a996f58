// Queued steps whose results the host does not know yet. On a GPU one step is queued ahead, so that
// the GPU always has work; on a CPU none, since a step is done when it is queued.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "trireme/base/running_clock.h"
#include "trireme/comm/islands.h"
#include "trireme/parallel/trainer_step.h"
#include "trireme/report/step_metrics.h"
#include "trireme/train/signals.h"

namespace trireme {

class StepQueue {
 public:
  // `units_per_step` are those of all islands.
  StepQueue(const ops::Context& ctx, const Islands& islands, const ProcessGrid& grid,
            RunningClock& clock, const StopSignals& signals, std::int64_t units_per_step)
      : ctx_(ctx),
        islands_(islands),
        grid_(grid),
        clock_(clock),
        signals_(signals),
        units_per_step_(units_per_step) {}

  // The number of steps that may stay unsettled while nothing needs their results.
  std::size_t ahead() const { return ctx_.device.kind == DeviceKind::kCpu ? 0 : 1; }
  std::size_t size() const { return queued_.size(); }

  // The state of this rank's clocks at the beginning of a step.
  struct Mark {
    double time = 0.0, exposed_comm = 0.0;  // seconds
  };
  Mark mark() const;
  // `metrics` holds what the host knows about the step, including its wait for data.
  void push(const Mark& begin, parallel::QueuedStep step, const StepMetrics& metrics);

  struct Known {
    StepMetrics metrics;                              // of all ranks
    double seconds, wait_data_seconds, comm_seconds;  // of this rank
    int signal;                                       // that has arrived at some rank; 0: none
  };
  // Collective over the world. Waits for the oldest steps until at most `left` are queued, and
  // returns those that are done, in order.
  std::vector<Known> settle(std::size_t left);

 private:
  struct Queued {
    parallel::QueuedStep step;
    StepMetrics metrics;
    double begin = 0.0, exposed_comm = 0.0;
  };
  Known settle(const Queued& queued);
  parallel::StepResult of_islands(const parallel::StepResult& own, StepMetrics& metrics) const;
  double exposed_comm() const { return grid_.runtime().recorder().exposed_seconds(); }

  const ops::Context& ctx_;
  const Islands& islands_;
  const ProcessGrid& grid_;
  RunningClock& clock_;  // a step does not take the time for which its job was suspended
  const StopSignals& signals_;
  std::int64_t units_per_step_;
  std::deque<Queued> queued_;
  double settled_ = 0.0;  // when the last step was settled, by clock_
};

}  // namespace trireme
