#include "trireme/setup/hang_limit.h"

#include <algorithm>

namespace trireme {

void HangLimit::step_took(double seconds) {
  longest_step_ = std::max(longest_step_, seconds);
  ++steps_;
}

void HangLimit::checkpoint_took(std::int64_t bytes, double seconds) {
  if (bytes <= 0 || seconds <= 0) return;
  const double rate = static_cast<double>(bytes) / seconds;
  slowest_rate_ = std::min(slowest_rate_.value_or(rate), rate);
}

double HangLimit::seconds() const {
  if (fixed_) return *fixed_;
  return steps_ < kMeasured ? kUnmeasured : std::max(kLeast, kLongestSteps * longest_step_);
}

double HangLimit::seconds_with_checkpoint(std::int64_t bytes) const {
  const double rate = slowest_rate_.value_or(kUnmeasuredRate);
  return seconds() + kTimesSlower * static_cast<double>(bytes) / rate;
}

}  // namespace trireme
