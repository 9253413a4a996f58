#include "trireme/train/checkpoint_cadence.h"

namespace trireme {

CheckpointCadence::CheckpointCadence(std::optional<std::int64_t> every, double between_failures,
                                     double write, std::int64_t step)
    : every_(every), between_failures_(between_failures), write_(write), step_(step) {}

void CheckpointCadence::step_took(double seconds) {
  ++step_;
  ++steps_;
  seconds_ += seconds;
  step_seconds_ = seconds_ / static_cast<double>(steps_);
}

void CheckpointCadence::checkpoint_took(double seconds) {
  write_ = seconds;
  seconds_ = 0.0;
  steps_ = 0;
}

bool CheckpointCadence::due(std::int64_t ahead) const {
  if (every_) return *every_ > 0 && (step_ + ahead) % *every_ == 0;
  return steps_ + ahead >= *steps_between();
}

std::optional<std::int64_t> CheckpointCadence::steps_between() const {
  if (every_) return std::nullopt;
  return best_steps_between_checkpoints(write_, between_failures_, step_seconds_);
}

}  // namespace trireme
