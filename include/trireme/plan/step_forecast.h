// How long a step takes on devices and a network that are described: its programs, replayed.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "trireme/plan/device_description.h"
#include "trireme/plan/dry_run.h"
#include "trireme/plan/network_costs.h"
#include "trireme/plan/replay.h"

namespace trireme::plan {

// One stage of a forecast: that of its first tensor rank.
struct StageForecast {
  int place = 0;
  RankTimes times = {};  // of its whole step
  // The seconds of operations and copies, by name, and how often they are called.
  struct Operations {
    double seconds = 0.0, calls = 0.0, flops = 0.0, bytes = 0.0;
    Operations& operator+=(const Operations& more);
  };
  std::map<std::string, Operations> operations = {};
  // The seconds in which links carry what it sends, and bytes, by communicator and operation.
  struct Communication {
    double seconds = 0.0, calls = 0.0, bytes = 0.0;
  };
  std::map<std::pair<std::string, std::string>, Communication> communication = {};
};

struct StepForecast {
  double seconds = 0.0;          // of a step
  double low = 0.0, high = 0.0;  // the interval that holds nine of ten
  std::vector<StageForecast> stages;

  // The stage that computes most.
  const StageForecast& busiest() const;
  // The share of all stages' time in which they wait for other stages: a pipeline's bubble.
  double bubble() const;
  // The share of all stages' time in which they wait for communication under way, by communicator.
  std::map<std::string, double> exposed() const;
};

// The programs of a step, recorded once and costed as often as one likes.
struct RecordedStep {
  // The stages for each number of micro-batches of RecordedMicroBatches.
  std::vector<std::vector<DryRunResult>> stages;
  int periods = 0;
  double launches = 1.0;  // 0: the step is captured, and its operations are not queued one by one
  bool nccl = false;
};
// Throws as dry_run does.
RecordedStep record_step(const DryRunInput& input);

StepForecast forecast_step(const RecordedStep& step, const DeviceCosts& device,
                           NetworkCosts& network, std::vector<Trace>* traces = nullptr);

// Records and forecasts the step of a training. Each of `traces`, if it is not null, is what a
// stage does in the micro-batches that are recorded. Throws as dry_run does.
StepForecast forecast_step(const DryRunInput& input, const DeviceCosts& device,
                           NetworkCosts& network, std::vector<Trace>* traces = nullptr);

// The FLOPs of the model in a step, without what is computed again (3 times those of the forward).
double model_flops(const DryRunInput& input);

// The interval of a sum of times that are known to these relative half-widths: they are taken to be
// wrong independently of each other.
double joint_interval(double seconds_a, double interval_a, double seconds_b, double interval_b);

}  // namespace trireme::plan
