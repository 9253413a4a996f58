#include "train/settled_rate.h"

#include <cstdint>
#include <string_view>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/config/schedule_options.h"
#include "trireme/optim/schedule.h"
#include "trireme/setup/found_checkpoint.h"

namespace trireme {
namespace {

constexpr double kRateOfTrained = 2e-5;
constexpr std::int64_t kWarmupPercent = 3;
constexpr std::string_view kRate = "optim.lr", kWarmup = "schedule.warmup";

bool has_warmup(const Config& config) {
  return optim::curve_kind(optim::learning_rate_curve(config.schedule.name)).has("warmup");
}

// Adds the key to `settled`, and its value, as in "optim.lr 2e-05", to what is said.
template <class Value>
void note(SettledRate& settled, std::string_view key, const Value& value) {
  settled.keys += fmt::format("{}{}", settled.keys.empty() ? "" : " ", key);
  settled.said += fmt::format("{}{} {}", settled.said.empty() ? "" : ", ", key, write_value(value));
}

// Takes a value over where the keys leave it open, and remembers that it was settled as long as it
// stays what it was.
template <class Value>
void take_over(SettledRate& settled, std::string_view key, const std::optional<Value>& before,
               std::optional<Value>& now) {
  if (!before) return;
  if (!now) now = before;
  if (*now == *before) note(settled, key, *now);
}

SettledRate as_before(const Checkpoint& checkpoint, Config& config) {
  const CheckpointInfo& info = checkpoint.info();
  const auto found = info.extra.find(kSettledAttribute);
  if (found == info.extra.end()) return {};
  SettledRate settled;
  try {
    const Config before = config_from_ini(info.config, checkpoint.path());
    if (found->second.find(kRate) != std::string::npos) {
      take_over(settled, kRate, before.optim.lr, config.optim.lr);
    }
    if (found->second.find(kWarmup) != std::string::npos && has_warmup(config)) {
      take_over(settled, kWarmup, before.schedule.warmup, config.schedule.warmup);
    }
  } catch (const ConfigError&) {  // of another version; whoever compares the settings tells
  }
  if (!settled.said.empty()) settled.said += ", as at the first start";
  return settled;
}

SettledRate at_first_start(Config& config) {
  SettledRate settled;
  if (!config.optim.lr) note(settled, kRate, *(config.optim.lr = kRateOfTrained));
  if (!config.schedule.warmup && has_warmup(config)) {
    const std::int64_t steps = config.run.steps;
    config.schedule.warmup = (steps * kWarmupPercent + 99) / 100;
    note(settled, kWarmup, *config.schedule.warmup);
    settled.said += fmt::format(" ({} % of the run)", kWarmupPercent);
  }
  if (!settled.said.empty()) settled.said += ": the run begins with trained weights";
  return settled;
}

}  // namespace

bool may_have_settled_rate(const Config& config) {
  return config.model.family == "gpt" && config.optim.name == "adamw";
}

SettledRate settle_rate(const std::optional<Checkpoint>& checkpoint, Config& config) {
  if (!may_have_settled_rate(config)) return {};
  const bool imported = checkpoint && checkpoint->info().extra.contains(kImportedAttribute);
  if (!checkpoint && !config.run.start_from) return {};
  SettledRate settled =
      imported || !checkpoint ? at_first_start(config) : as_before(*checkpoint, config);
  check_learning_rate(config);
  return settled;
}

}  // namespace trireme
