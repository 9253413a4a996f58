#include "trireme/train/checkpoint_cadence.h"

#include <algorithm>
#include <cmath>

namespace trireme {

double best_checkpoint_interval(double write, double between_failures) {
  if (write >= 2 * between_failures) return between_failures;
  const double share = write / (2 * between_failures);
  return std::sqrt(2 * write * between_failures) * (1 + std::sqrt(share) / 3 + share / 9) - write;
}

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
  if (step_seconds_ <= 0.0) return 1;
  const double interval = best_checkpoint_interval(write_, between_failures_);
  return std::max<std::int64_t>(1, std::llround(interval / step_seconds_));
}

}  // namespace trireme
