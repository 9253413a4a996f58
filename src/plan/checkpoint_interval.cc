#include "trireme/plan/checkpoint_interval.h"

#include <algorithm>
#include <cmath>

namespace trireme {

double best_checkpoint_interval(double write, double between_failures) {
  if (write >= 2 * between_failures) return between_failures;
  const double share = write / (2 * between_failures);
  return std::sqrt(2 * write * between_failures) * (1 + std::sqrt(share) / 3 + share / 9) - write;
}

std::int64_t best_steps_between_checkpoints(double write, double between_failures, double step) {
  constexpr double kMost = 1e18;
  if (step <= 0.0) return 1;
  const double interval = best_checkpoint_interval(write, between_failures);
  return std::max<std::int64_t>(1, std::llround(std::min(kMost, interval / step)));
}

double guessed_checkpoint_seconds(double bytes) {
  constexpr double kBytesPerSecond = 200e6;
  return 1.0 + bytes / kBytesPerSecond;
}

}  // namespace trireme
