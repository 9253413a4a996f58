#include "trireme/config/schedule_options.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "trireme/base/error.h"
#include "trireme/config/optimizer_config.h"

namespace trireme {
namespace {

[[noreturn]] void refuse_key(std::string_view key, const std::string& name) {
  std::vector<std::string_view> others;
  for (const optim::LearningRateCurveKind& kind : optim::learning_rate_curves()) {
    if (kind.has(key)) others.push_back(kind.name);
  }
  throw ConfigError(
      fmt::format("schedule.{} is given, but schedule.name is {}: only {} {} it, so leave it out",
                  key, name, fmt::join(others, ", "), others.size() == 1 ? "has" : "have"));
}

// A key that the curve does not have would do nothing.
void check_keys_of_curve(const Config::Schedule& schedule) {
  const Config::Schedule usual;
  const optim::LearningRateCurveKind& kind =
      optim::curve_kind(optim::learning_rate_curve(schedule.name));
  const auto check = [&](const char* key, bool given) {
    if (given && !kind.has(key)) refuse_key(key, schedule.name);
  };
  check("warmup", schedule.warmup.has_value());
  check("decay", schedule.decay.has_value());
  check("factor", schedule.factor != usual.factor);
  check("least", schedule.least.has_value());
  check("period", schedule.period.has_value());
  check("period_factor", schedule.period_factor != usual.period_factor);
  check("file", schedule.file.has_value());
  if (kind.has("period") && !schedule.period) {
    throw ConfigError(fmt::format(
        "schedule.name is {}, which needs a period: give the steps to the first restart, as in "
        "--schedule.period 10ep",
        schedule.name));
  }
  if (kind.has("file") && !schedule.file) {
    throw ConfigError(fmt::format(
        "schedule.name is {}, which needs a file: name it, as in --schedule.file rates.txt",
        schedule.name));
  }
}

// " --schedule.decay 54": what gives a run the lengths that it had. Nothing can where wsd's last
// part stands at the end of another run.
std::string keys_that_keep(const optim::LearningRateSchedule& was,
                           const optim::LearningRateOptions& given,
                           const optim::LearningRateSchedule& is) {
  struct Length {
    const char* key;
    bool is_given;
    std::int64_t before, now;
  };
  if (given.curve == optim::LearningRateCurve::kWsd) return "";
  std::string keys;
  for (const Length& length :
       {Length{"warmup", given.warmup.has_value(), was.warmup(), is.warmup()},
        Length{"decay", given.decay.has_value(), was.decay(), is.decay()}}) {
    if (!optim::curve_kind(given.curve).has(length.key) || length.before == length.now) continue;
    if (length.is_given) return "";  // the user wants another curve
    keys += fmt::format(" --schedule.{} {}", length.key, length.before);
  }
  return keys;
}

}  // namespace

std::optional<optim::LearningRateOptions> schedule_options(const Config& config) {
  const Config::Schedule& schedule = config.schedule;
  for (const std::optional<Steps>& steps :
       {std::optional(config.run.steps), schedule.warmup, schedule.decay, schedule.period}) {
    if (steps && steps->epochs()) return std::nullopt;
  }
  return optim::LearningRateOptions{.curve = optim::learning_rate_curve(schedule.name),
                                    .peak = *with_defaults_of_rule(config.optim).lr,
                                    .total_steps = config.run.steps,
                                    .warmup = schedule.warmup,
                                    .decay = schedule.decay,
                                    .factor = schedule.factor,
                                    .least = schedule.least,
                                    .period = schedule.period,
                                    .period_factor = schedule.period_factor};
}

void check_learning_rate(const Config& config) {
  check_keys_of_curve(config.schedule);
  if (const auto options = schedule_options(config)) optim::LearningRateSchedule{*options};
}

std::string words_on_leap(const Config& before, const Config& now, std::int64_t step) {
  constexpr double kSmooth = 0.05;  // of the larger rate
  const auto old = schedule_options(before), given = schedule_options(now);
  if (!old || !given || step < 1 || old->total_steps == given->total_steps) return "";
  if (old->peak != given->peak || old->curve != given->curve) return "";
  if (given->curve == optim::LearningRateCurve::kTable) return "";  // it follows steps alone
  const optim::LearningRateSchedule was(*old), is(*given);
  const double from = was.at(step - 1), to = is.at(step), smooth = was.at(step);
  if (std::abs(to - smooth) <= kSmooth * std::max(to, smooth)) return "";
  const std::string remedy = keys_that_keep(was, *given, is);
  return fmt::format(
      "the learning rate goes from {:.2e} at step {} to {:.2e} at step {}: its curve followed "
      "run.steps, which was {}{}",
      from, step, to, step + 1, old->total_steps,
      remedy.empty() ? "" : fmt::format(";{} keeps the old curve", remedy));
}

}  // namespace trireme
