#include "trireme/config/steps.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/limits.h"

namespace trireme {
namespace {

constexpr std::string_view kEpochs = "ep";
constexpr double kMostEpochs = 1e6;
// 0.07 has no exact binary form, so steps that should be a whole number may come out a little above
// it. Steps that differ from a whole number by no more than this part of them are that number.
constexpr double kRoundingError = 1e-12;

}  // namespace

Steps Steps::of_epochs(double epochs) {
  Steps result;
  result.epochs_ = epochs;
  return result;
}

Steps::operator std::int64_t() const {
  TRIREME_CHECK(!epochs_, "epochs are no steps before the data are known");
  return steps_;
}

void Steps::resolve(std::uint64_t samples_per_epoch, std::int64_t samples_per_step) {
  if (!epochs_) return;
  const double samples = *epochs_ * static_cast<double>(samples_per_epoch);
  const double exact = samples / static_cast<double>(samples_per_step);
  const double nearest = std::round(exact);
  const bool is_noise = std::abs(exact - nearest) <= kRoundingError * exact;
  const double steps = is_noise ? nearest : std::ceil(exact);
  if (steps > limits::kSteps) {
    throw ConfigError(fmt::format("{} of {} samples are {:.0f} steps of {}: at most {:.0f} can be",
                                  write_value(*this), samples_per_epoch, steps, samples_per_step,
                                  limits::kSteps));
  }
  steps_ = std::max(std::int64_t{1}, static_cast<std::int64_t>(steps));
  epochs_.reset();
}

std::string read_value(std::string_view text, Steps& value, const Limit& limit) {
  if (!text.ends_with(kEpochs)) {
    std::int64_t steps = 0;
    const std::string problem = read_value(text, steps, limit);
    const bool is_number = text.find_first_not_of("-0123456789") == std::string_view::npos;
    if (!is_number) return problem + ", nor epochs as in 10ep";
    if (problem.empty()) value = steps;
    return problem;
  }
  double epochs = 0.0;
  Limit of_epochs = between(0, kMostEpochs);
  of_epochs.excludes_least = true;
  const std::string problem =
      read_value(text.substr(0, text.size() - kEpochs.size()), epochs, of_epochs);
  if (!problem.empty()) return fmt::format("{} (of epochs, as in 10ep)", problem);
  value = Steps::of_epochs(epochs);
  return "";
}

std::string write_value(const Steps& value) {
  if (value.epochs()) return write_value(*value.epochs()) + std::string(kEpochs);
  return write_value(std::int64_t{value});
}

}  // namespace trireme
