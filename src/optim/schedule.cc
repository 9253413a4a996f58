#include "trireme/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>

#include <fmt/format.h>

#include "trireme/base/error.h"

namespace trireme::optim {
namespace {

std::int64_t default_decay(LearningRateCurve curve, std::int64_t after_warmup) {
  std::int64_t steps = after_warmup;
  if (curve == LearningRateCurve::kStep) steps /= 3;
  if (curve == LearningRateCurve::kWsd) steps /= 5;
  return std::max<std::int64_t>(steps, 1);
}

}  // namespace

LearningRateCurve learning_rate_curve(const std::string& name) {
  if (name == "constant") return LearningRateCurve::kConstant;
  if (name == "linear") return LearningRateCurve::kLinear;
  if (name == "cosine") return LearningRateCurve::kCosine;
  if (name == "step") return LearningRateCurve::kStep;
  if (name == "wsd") return LearningRateCurve::kWsd;
  throw ConfigError(
      fmt::format("schedule.name is '{}': it is one of constant, linear, cosine, step, wsd", name));
}

LearningRateSchedule::LearningRateSchedule(const LearningRateOptions& options)
    : curve_(options.curve),
      peak_(options.peak),
      factor_(options.factor),
      total_(options.total_steps),
      warmup_(options.warmup.value_or(std::min<std::int64_t>(100, options.total_steps / 10))),
      decay_(options.decay.value_or(default_decay(curve_, total_ - warmup_))) {
  if (total_ < 1) throw ConfigError(fmt::format("run.steps is {}: at least 1 is needed", total_));
  if (warmup_ < 0 || warmup_ > total_) {
    throw ConfigError(fmt::format("schedule.warmup is {} steps: 0 to run.steps ({}) is possible",
                                  warmup_, total_));
  }
  if (decay_ < 1) {
    throw ConfigError(fmt::format("schedule.decay is {} steps: at least 1 is needed", decay_));
  }
  if (curve_ == LearningRateCurve::kWsd && options.decay && decay_ > total_ - warmup_) {
    throw ConfigError(
        fmt::format("schedule.decay is {} steps, but the warm-up leaves {} of run.steps ({})",
                    decay_, total_ - warmup_, total_));
  }
}

double LearningRateSchedule::part_of_peak(std::int64_t step) const {
  const auto length = static_cast<double>(decay_);
  const std::int64_t after = step - warmup_;
  const double u = std::min(1.0, static_cast<double>(after) / length);
  switch (curve_) {
    case LearningRateCurve::kConstant:
      break;
    case LearningRateCurve::kLinear:
      return 1.0 - u;
    case LearningRateCurve::kCosine:
      return 0.1 + 0.45 * (1.0 + std::cos(std::numbers::pi * u));
    case LearningRateCurve::kStep:
      return std::pow(factor_, static_cast<double>(after / decay_));
    case LearningRateCurve::kWsd:
      return std::clamp(static_cast<double>(total_ - step) / length, 0.0, 1.0);
  }
  return 1.0;
}

double LearningRateSchedule::at(std::int64_t step) const {
  if (step < warmup_) {
    return peak_ * static_cast<double>(step + 1) / static_cast<double>(warmup_);
  }
  return peak_ * part_of_peak(step);
}

}  // namespace trireme::optim
