// What rank 0 prints for the user during a run.
#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/ops/attention.h"
#include "trireme/parallel/trainer_step.h"
#include "trireme/report/step_metrics.h"
#include "trireme/setup/compute_device.h"
#include "trireme/tasks/task.h"

namespace trireme {

// On a terminal, prints one progress line and overwrites it at each step; in a batch log, prints
// one line every `every` steps, and once a minute where these take longer.
class Narrator {
 public:
  // `unit` is that of progress.
  Narrator(bool speaks, std::int64_t first_step, std::optional<std::int64_t> total_steps,
           std::int64_t every, const tasks::Unit& unit);

  void say(const std::string& line);  // prints a line that stays
  void step(const StepMetrics& metrics);
  // Prints the steps trained, mean tokens/s (or another unit), and shares of time spent waiting for
  // data and for communication.
  void close(const StepMetrics& last);

 private:
  std::string describe(const StepMetrics& metrics) const;

  tasks::Unit unit_;
  bool speaks_;
  bool terminal_;
  bool line_open_ = false;
  std::int64_t first_step_;
  std::optional<std::int64_t> total_steps_;
  std::int64_t every_;
  Stopwatch since_start_;
  double silent_seconds_ = 0.0;  // of steps since the last line about one
  double step_seconds_ = 0.0, wait_seconds_ = 0.0, comm_seconds_ = 0.0, units_ = 0.0;
  std::int64_t steps_ = 0;
};

// What a run has when it starts.
struct StartedRun {
  const Config& config;
  const nn::ModelPlan& plan;
  const parallel::TrainerStep& step;
  const ComputeDevice& device;
  const ops::AttentionChoice& attention;
  const tasks::TaskData& data;
  std::string network;  // what is known of it; empty: nothing that is worth a line
};
// Returns the table printed at the start of a run: model, grid, batch arithmetic, memory,
// libraries, what computes attention if the model has any, and the network.
std::string startup_table(const StartedRun& run);

}  // namespace trireme
