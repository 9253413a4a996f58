// How often a run writes a checkpoint.
#pragma once

#include <cstdint>
#include <optional>

namespace trireme {

// Seconds of computation between two checkpoints that lose the least time, where writing one takes
// `write` seconds and failures come every `between_failures` seconds on average: equation 37 of
// Daly, "A higher order estimate of the optimum checkpoint interval for restart dumps", Future
// Generation Computer Systems 22 (2006), whose first term is Young's.
double best_checkpoint_interval(double write, double between_failures);

// The same on all ranks, which give it the same times: whether a checkpoint is due follows from
// them.
class CheckpointCadence {
 public:
  // `every` steps (0: never of its own accord), or, where it is nothing, as often as is best for
  // failures every `between_failures` seconds; `write` seconds are what a checkpoint is thought to
  // take until one has been measured. `step`: the last one done.
  CheckpointCadence(std::optional<std::int64_t> every, double between_failures, double write,
                    std::int64_t step);

  void step_took(double seconds);
  // After the last step told.
  void checkpoint_took(double seconds);

  // Whether one is due `ahead` steps after the last step told.
  bool due(std::int64_t ahead = 0) const;
  // Steps between two, as far as is known; nothing where that is fixed.
  std::optional<std::int64_t> steps_between() const;

 private:
  std::optional<std::int64_t> every_;
  double between_failures_, write_;
  std::int64_t step_;
  // Since the last checkpoint.
  double seconds_ = 0.0;
  std::int64_t steps_ = 0;
  double step_seconds_ = 0.0;  // the usual step: of those before the last checkpoint, or so far
};

}  // namespace trireme
