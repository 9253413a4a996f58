#include "trireme/optim/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"

namespace trireme::optim {
namespace {

std::int64_t default_warmup(LearningRateCurve curve, std::int64_t total) {
  if (curve == LearningRateCurve::kTable) return 0;
  return std::min<std::int64_t>(100, total / 10);
}

std::int64_t default_decay(LearningRateCurve curve, std::int64_t after_warmup) {
  std::int64_t steps = after_warmup;
  if (curve == LearningRateCurve::kStep) steps /= 3;
  if (curve == LearningRateCurve::kWsd) steps /= 5;
  return std::max<std::int64_t>(steps, 1);
}

// Falls from 1 at u = 0 to 0 at u = 1.
double half_cosine(double u) {
  return 0.5 * (1.0 + std::cos(std::numbers::pi * u));
}

// `step` counts from 1.
double part_between(const std::vector<LearningRatePoint>& points, std::int64_t step) {
  TRIREME_CHECK(!points.empty(), "a table of learning rates without points");
  const auto next = std::ranges::upper_bound(points, step, {}, &LearningRatePoint::step);
  if (next == points.begin()) return points.front().part;
  if (next == points.end()) return points.back().part;
  const LearningRatePoint& before = *std::prev(next);
  const double past =
      static_cast<double>(step - before.step) / static_cast<double>(next->step - before.step);
  return before.part + (next->part - before.part) * past;
}

}  // namespace

bool LearningRateCurveKind::has(std::string_view key) const {
  return std::ranges::find(keys, key) != keys.end();
}

const std::vector<LearningRateCurveKind>& learning_rate_curves() {
  using Curve = LearningRateCurve;
  static const std::vector<LearningRateCurveKind> kinds = {
      {Curve::kConstant, "constant", {"warmup"}},
      {Curve::kLinear, "linear", {"warmup", "decay", "least"}},
      {Curve::kCosine, "cosine", {"warmup", "decay", "least"}, 0.1},
      {Curve::kCosineRestarts, "cosine_restarts", {"warmup", "period", "period_factor", "least"}},
      {Curve::kStep, "step", {"warmup", "decay", "factor", "least"}},
      {Curve::kWsd, "wsd", {"warmup", "decay", "least"}},
      {Curve::kInverseSqrt, "inverse_sqrt", {"warmup", "least"}},
      {Curve::kTable, "table", {"file"}}};
  return kinds;
}

const LearningRateCurveKind& curve_kind(LearningRateCurve curve) {
  return *std::ranges::find(learning_rate_curves(), curve, &LearningRateCurveKind::curve);
}

std::vector<std::string> learning_rate_curve_names() {
  std::vector<std::string> names;
  for (const LearningRateCurveKind& kind : learning_rate_curves()) names.emplace_back(kind.name);
  return names;
}

LearningRateCurve learning_rate_curve(const std::string& name) {
  for (const LearningRateCurveKind& kind : learning_rate_curves()) {
    if (kind.name == name) return kind.curve;
  }
  throw ConfigError(fmt::format("schedule.name is '{}': it is one of {}", name,
                                fmt::join(learning_rate_curve_names(), ", ")));
}

LearningRateSchedule::LearningRateSchedule(LearningRateOptions options)
    : given_(std::move(options)),
      total_(given_.total_steps),
      warmup_(given_.warmup.value_or(default_warmup(given_.curve, total_))),
      decay_(given_.decay.value_or(default_decay(given_.curve, total_ - warmup_))),
      least_(given_.least.value_or(curve_kind(given_.curve).least)) {
  check();
}

void LearningRateSchedule::check() const {
  if (total_ < 1) throw ConfigError(fmt::format("run.steps is {}: at least 1 is needed", total_));
  if (warmup_ < 0 || warmup_ > total_) {
    throw ConfigError(fmt::format("schedule.warmup is {} steps: 0 to run.steps ({}) is possible",
                                  warmup_, total_));
  }
  if (decay_ < 1) {
    throw ConfigError(fmt::format("schedule.decay is {} steps: at least 1 is needed", decay_));
  }
  if (given_.curve == LearningRateCurve::kWsd && given_.decay && decay_ > total_ - warmup_) {
    throw ConfigError(
        fmt::format("schedule.decay is {} steps, but the warm-up leaves {} of run.steps ({})",
                    decay_, total_ - warmup_, total_));
  }
  if (given_.curve != LearningRateCurve::kCosineRestarts) return;
  if (given_.period.value_or(0) < 1 || given_.period_factor < 1) {
    throw ConfigError(fmt::format(
        "schedule.period is {} steps and schedule.period_factor {}: at least 1 is needed",
        given_.period.value_or(0), given_.period_factor));
  }
}

// The part of its period that lies before the step with so many steps after the warm-up.
double LearningRateSchedule::part_of_period(std::int64_t after) const {
  // Whole numbers; those of periods longer than any run need not be exact.
  auto past = static_cast<double>(after), length = static_cast<double>(*given_.period);
  if (given_.period_factor == 1) return std::fmod(past, length) / length;
  while (past >= length) {
    past -= length;
    length *= static_cast<double>(given_.period_factor);
  }
  return past / length;
}

double LearningRateSchedule::part_of_peak(std::int64_t step) const {
  const auto length = static_cast<double>(decay_);
  const std::int64_t after = step - warmup_;
  const double u = std::min(1.0, static_cast<double>(after) / length);
  switch (given_.curve) {
    case LearningRateCurve::kConstant:
      break;
    case LearningRateCurve::kLinear:
      return above_floor(1.0 - u);
    case LearningRateCurve::kCosine:
      return above_floor(half_cosine(u));
    case LearningRateCurve::kCosineRestarts:
      return above_floor(half_cosine(part_of_period(after)));
    case LearningRateCurve::kStep:
      return std::max(least_, std::pow(given_.factor, static_cast<double>(after / decay_)));
    case LearningRateCurve::kWsd:
      return above_floor(std::clamp(static_cast<double>(total_ - step) / length, 0.0, 1.0));
    case LearningRateCurve::kInverseSqrt: {
      const auto scale = static_cast<double>(std::max<std::int64_t>(warmup_, 1));
      return std::max(least_, std::sqrt(scale / static_cast<double>(step + 1)));
    }
    case LearningRateCurve::kTable:
      return part_between(given_.points, step + 1);
  }
  return 1.0;
}

double LearningRateSchedule::at(std::int64_t step) const {
  if (step < warmup_) {
    return given_.peak * static_cast<double>(step + 1) / static_cast<double>(warmup_);
  }
  return given_.peak * part_of_peak(step);
}

}  // namespace trireme::optim
