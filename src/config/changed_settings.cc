#include <algorithm>
#include <cmath>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/config/config.h"
#include "trireme/config/optimizer_config.h"
#include "trireme/config/schedule_options.h"
#include "trireme/models/family.h"

namespace trireme {
namespace {

// A configuration and its table of keys.
struct Table {
  explicit Table(const Config& from) : config(from), options("") {
    add_config_keys(options, config);
  }
  Config config;
  Options options;
};

// Writes out the lengths and the floor of the schedule that are left to follow from the others.
void write_out_schedule(Table& table) {
  Config::Schedule& schedule = table.config.schedule;
  try {
    const auto options = schedule_options(table.config);
    if (!options) return;
    const optim::LearningRateSchedule rate(*options);
    const optim::LearningRateCurveKind& kind = optim::curve_kind(options->curve);
    if (kind.has("warmup")) schedule.warmup = rate.warmup();
    if (kind.has("decay")) schedule.decay = rate.decay();
    if (kind.has("least")) schedule.least = rate.least();
  } catch (const ConfigError&) {  // from another version; compared as it is written
  }
}

// Whether a model of these keys, when it is resolved, is the same with one more.
bool does_nothing(models::ModelRequest model, const std::string& key, const std::string& value,
                  const OptionValues& resolved) {
  model.keys[key] = value;
  try {
    return models::resolve(model, {}).request.keys == resolved;
  } catch (const ConfigError&) {
    return false;
  }
}

// Writes out the keys of the old model that its version did not know, where the new one has them:
// they had the values that follow from the others. Of a choice that models are written without, the
// value that does nothing is the same as none. Returns the names of keys that are to be compared.
std::vector<std::string> write_out_model(Table& old, const Table& now,
                                         const std::set<std::string>& recorded) {
  std::vector<std::string> names;
  const auto is_of_model = [](const std::string& name) { return name.starts_with("model."); };
  if (std::ranges::none_of(recorded, is_of_model)) return names;
  try {
    const OptionValues before = models::resolve(old.config.model, {}).request.keys;
    for (const auto& [key, value] : now.config.model.keys) {
      const std::string name = "model." + key;
      if (recorded.contains(name)) continue;
      const auto found = before.find(key);
      if (found != before.end()) {
        old.config.model.keys[key] = found->second;
      } else if (does_nothing(old.config.model, key, value, before)) {
        continue;
      }
      names.push_back(name);
    }
  } catch (const ConfigError&) {  // from another version; compared as it is written
  }
  return names;
}

// What batch.micro auto came to counts, not that it was auto.
std::string_view number_in(std::string_view micro) {
  constexpr std::string_view kAuto = "auto ";
  return micro.starts_with(kAuto) ? micro.substr(kAuto.size()) : micro;
}

// Earlier versions wrote real numbers of models, which are floats, with the digits of doubles:
// 0.10000000149011612.
bool are_same(const std::string& name, const std::string& was, const std::string& is) {
  if (name == "batch.micro") return number_in(was) == number_in(is);
  if (was == is || !name.starts_with("model.")) return was == is;
  double before = 0.0, now = 0.0;
  const bool numbers = read_value(was, before, {}).empty() && read_value(is, now, {}).empty();
  return numbers && before != std::floor(before) &&
         static_cast<float>(before) == static_cast<float>(now);
}

bool is_compared(const OptionDescription& key, bool sums_depend) {
  return (key.on_change == OnChange::kSums && sums_depend) ||
         key.on_change == OnChange::kRounding || key.on_change == OnChange::kResults ||
         key.on_change == OnChange::kOtherRun;
}

}  // namespace

bool sums_depend_on_algorithm(const Config::Comm& comm) {
  return comm.order == "any" || comm.reduce != "fp32";
}

std::string ChangedSetting::text() const {
  return fmt::format("{} was {}, is {}", name, before, now);
}

std::vector<ChangedSetting> changed_settings(std::string_view before, const std::string& origin,
                                             const Config& now) {
  Table old({}), current(with_absolute_paths(now));
  std::set<std::string> recorded = old.options.take_over(before, origin);
  old.config = with_absolute_paths(old.config);  // earlier versions wrote them as they were given
  for (const std::string& key : write_out_model(old, current, recorded)) recorded.insert(key);
  if (recorded.contains("run.steps")) {
    write_out_schedule(old);
    write_out_schedule(current);
  }
  // A default that the rule decides is compared as the number that it is.
  for (Table* table : {&old, &current}) {
    table->config.optim = with_defaults_of_rule(table->config.optim);
  }
  const bool sums_depend =
      sums_depend_on_algorithm(old.config.comm) || sums_depend_on_algorithm(now.comm);
  const std::vector<std::string> names = current.options.names();
  std::vector<ChangedSetting> changes;
  for (const OptionDescription& key : old.options.keys()) {
    // A value that follows from others is not written, except those of the model, and batch.micro.
    const bool was_auto =
        key.default_text == "auto" && !key.name.starts_with("model.") && key.name != "batch.micro";
    const bool is_family = key.name == "model.family";  // before there were others, it was gpt
    const bool known = recorded.contains(key.name) || was_auto || is_family;
    if (!known || !is_compared(key, sums_depend)) continue;
    if (std::ranges::find(names, key.name) == names.end()) continue;  // of another family
    const std::string was = old.options.value_of(key.name), is = current.options.value_of(key.name);
    const bool rounds = key.on_change == OnChange::kSums;
    if (!are_same(key.name, was, is)) {
      changes.push_back({key.name, was, is, rounds ? OnChange::kRounding : key.on_change});
    }
  }
  return changes;
}

}  // namespace trireme
