// Steps that are queued and whose numbers the host does not know yet: one ahead of a GPU, which so
// always has work; none on a CPU, where a step is done when it is queued.
#pragma once

#include <cstdint>
#include <deque>
#include <vector>

#include "trireme/base/clock.h"
#include "trireme/parallel/trainer_step.h"
#include "trireme/report/step_metrics.h"

namespace trireme {

class StepQueue {
 public:
  StepQueue(const ops::Context& ctx, const ProcessGrid& grid, std::int64_t tokens_per_step)
      : ctx_(ctx), grid_(grid), tokens_per_step_(tokens_per_step) {}

  // How many may be left when nothing needs to know them.
  std::size_t ahead() const { return ctx_.device.kind == DeviceKind::kCpu ? 0 : 1; }
  std::size_t size() const { return queued_.size(); }

  // Where a step begins on this rank.
  struct Mark {
    double time = 0.0, exposed_comm = 0.0;  // seconds
  };
  Mark mark() const;
  // `metrics`: what the host knows of the step, its waiting for data among it.
  void push(const Mark& begin, parallel::QueuedStep step, const StepMetrics& metrics);

  struct Known {
    StepMetrics metrics;                              // of all ranks
    double seconds, wait_data_seconds, comm_seconds;  // of this rank
  };
  // Waits for the oldest until at most `left` are left. Collective over the world.
  std::vector<Known> settle(std::size_t left);

 private:
  struct Queued {
    parallel::QueuedStep step;
    StepMetrics metrics;
    double begin = 0.0, exposed_comm = 0.0;
  };
  Known settle(const Queued& queued);
  double exposed_comm() const { return grid_.runtime().recorder().exposed_seconds(); }

  const ops::Context& ctx_;
  const ProcessGrid& grid_;
  std::int64_t tokens_per_step_;
  Stopwatch clock_;
  std::deque<Queued> queued_;
  double settled_ = 0.0;  // when the last one became known, by clock_
};

}  // namespace trireme
