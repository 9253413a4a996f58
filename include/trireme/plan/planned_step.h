// What was predicted of a run's step before it ran, kept in the run folder as plan.json.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme::plan {

struct PlannedStep {
  double low = 0.0, predicted = 0.0, high = 0.0;  // seconds of a step
  std::optional<double> measured = {};            // seconds; nothing until it has run
  std::string device = {};                        // DeviceDescription::name
  std::string network = {};                       // NetworkDescription::name; empty: one node
};

// The text of plan.json; src/plan/README.md lists its keys.
std::string write_planned_step(const PlannedStep& step);
// Reads it. `origin` names the text in errors. Keys that it does not know are passed over. Throws
// ConfigError in one line for what is missing or makes no sense.
PlannedStep read_planned_step(std::string_view text, const std::string& origin);

}  // namespace trireme::plan
