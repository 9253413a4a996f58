// The second half of the checker: all stages together.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "trireme/parallel/schedule.h"

namespace trireme::parallel {

// Runs all stages together. A lane holds the transfers posted by each end, in order; transfer k of
// the sender meets transfer k of the receiver when both are posted. A stage goes on behind an
// exchange when all its transfers have met: what is free of deadlock so is free of it too where
// exchanges go on in the background, as the executor's do. What a stage computes does not depend on
// time, so the order in which stages are visited does not matter.
//
// Time is that of exchanges in the background: a stage posts an exchange and goes on, and a
// computation begins when the transfer that brings its input is complete. With
// ScheduleCosts::in_order it is when the whole exchange is complete, which each of its two ends
// begins after its exchange before.
class ScheduleSimulation {
 public:
  using Problem = std::optional<std::string>;  // a sentence

  // The schedule's lists must each have passed StageWalk. Both arguments must outlive this object.
  ScheduleSimulation(const PipelineSchedule& schedule, const ScheduleCosts& costs);

  // The first problem, if there is one.
  Problem run();
  double makespan() const;
  double busy() const;  // summed over the stages

 private:
  struct Posted {
    PipelineMessage message;  // as the sender writes it
    double time;
  };
  struct Lane {
    std::vector<Posted> sends, receives;
  };
  // A transfer of the exchange that a stage waits in.
  struct Pending {
    int from, to;
    std::size_t index;  // in its lane
    bool is_send;
    PipelineMessage message;
  };
  struct Stage {
    std::size_t position = 0;
    bool posted = false;  // the exchange at `position`
    std::vector<Pending> pending;
    double clock = 0, busy = 0;
    double exchanged = 0;  // when its last exchange was complete, with ScheduleCosts::in_order
  };

  const std::vector<PipelineStep>& steps_of(int stage) const {
    return schedule_.steps[static_cast<std::size_t>(stage)];
  }
  double cost_of(int stage, const PipelineStep& step) const;
  // When the value that part `producer` made of a micro-batch is on the stage that uses it. One
  // stage does.
  double& arrival(PipelineMessage::Payload payload, int micro_batch, int producer);
  double input_arrives(int stage, const PipelineStep& step);
  bool advance(int index);
  void compute(int index, const PipelineStep& step, Stage& stage);
  void post(int index, const PipelineStep& step, Stage& stage);
  bool finish(Stage& stage);
  bool met(const Pending& transfer) const;
  Problem mismatch(const Pending& transfer) const;
  // Tells what each stage waits for, if some have not finished.
  Problem deadlock() const;

  const PipelineSchedule& schedule_;
  const ScheduleCosts& costs_;
  std::vector<Stage> stages_;
  std::map<std::pair<int, int>, Lane> lanes_;
  std::vector<double> arrivals_;  // by payload, micro-batch and producing part
  Problem problem_;
};

}  // namespace trireme::parallel
