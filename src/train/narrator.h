// What rank 0 tells the user while a run goes on.
#pragma once

#include <cstdint>
#include <string>

#include "trireme/base/clock.h"
#include "trireme/report/step_metrics.h"
#include "trireme/train/compute_device.h"
#include "trireme/train/setup.h"

namespace trireme {

// On a terminal one progress line that is written over at each step; in a batch log one line each
// `every` steps.
class Narrator {
 public:
  Narrator(bool speaks, std::int64_t first_step, std::int64_t total_steps, std::int64_t every);

  void say(const std::string& line);  // a line that stays
  void step(const StepMetrics& metrics);
  // Steps trained, mean tokens/s, share of time spent waiting for data and for communication.
  void close(const StepMetrics& last);

 private:
  std::string describe(const StepMetrics& metrics) const;

  bool speaks_;
  bool terminal_;
  bool line_open_ = false;
  std::int64_t first_step_, total_steps_, every_;
  Stopwatch since_start_;
  double step_seconds_ = 0.0, wait_seconds_ = 0.0, comm_seconds_ = 0.0, tokens_ = 0.0;
  std::int64_t steps_ = 0;
};

// The table that a run begins with: model, grid, batch arithmetic, memory, libraries.
std::string startup_table(const Config& config, const nn::ModelPlan& plan,
                          const parallel::TrainerStep& step, const ComputeDevice& device,
                          const TokenDataset& data);

}  // namespace trireme
