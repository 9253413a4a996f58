// How often a run writes a checkpoint.
#pragma once

#include <cstdint>
#include <optional>

#include "trireme/plan/checkpoint_interval.h"

namespace trireme {

// Decides when a checkpoint is due. All ranks give it the same times, so all decide alike.
class CheckpointCadence {
 public:
  // A checkpoint is due after `every` steps (0: never). Where `every` is nullopt, it is due as
  // often as is best for failures every `between_failures` seconds. `write` is the assumed time of
  // a checkpoint in seconds until one has been measured. `step` is the last step done.
  CheckpointCadence(std::optional<std::int64_t> every, double between_failures, double write,
                    std::int64_t step);

  void step_took(double seconds);
  // A checkpoint was written after the last reported step.
  void checkpoint_took(double seconds);

  // Returns whether a checkpoint is due `ahead` steps after the last reported step.
  bool due(std::int64_t ahead = 0) const;
  // The current estimate of the steps between two checkpoints; nullopt where `every` fixes them.
  std::optional<std::int64_t> steps_between() const;

 private:
  std::optional<std::int64_t> every_;
  double between_failures_, write_;
  std::int64_t step_;
  // What has passed since the last checkpoint.
  double seconds_ = 0.0;
  std::int64_t steps_ = 0;
  double step_seconds_ = 0.0;  // mean of the steps since the last checkpoint, or before it
};

}  // namespace trireme
