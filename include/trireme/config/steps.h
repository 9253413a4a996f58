// Numbers of steps that may be given in epochs.
#pragma once

#include <concepts>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "trireme/base/options.h"

namespace trireme {

// A number of optimizer steps, or of epochs (passes over the training data) until the data are
// known. As an integer it is the steps; it must not be used so while it is in epochs.
class Steps {
 public:
  Steps(std::int64_t steps = 0) : steps_(steps) {}
  static Steps of_epochs(double epochs);

  operator std::int64_t() const;
  const std::optional<double>& epochs() const { return epochs_; }
  // Turns epochs of so many samples into steps: as many as read all of them, so rounded up, but not
  // on account of rounding errors. Throws ConfigError where these are more than a run can have.
  void resolve(std::uint64_t samples_per_epoch, std::int64_t samples_per_step);

  bool operator==(const Steps&) const = default;
  template <std::integral Integer>
  bool operator==(Integer steps) const {
    return *this == Steps(steps);
  }

 private:
  std::int64_t steps_;
  std::optional<double> epochs_;
};

// The text of a number of steps, "1000" or "10ep", read and written as options.h asks of values.
// Limits are those of the steps.
std::string read_value(std::string_view text, Steps& value, const Limit& limit);
std::string write_value(const Steps& value);
inline std::string value_placeholder(const Steps&) {
  return "N";
}

}  // namespace trireme
