#include "trireme/plan/planned_step.h"

#include <cmath>

#include <fmt/format.h>

#include "trireme/base/error.h"
#include "trireme/base/json.h"
#include "trireme/base/printable.h"

namespace trireme::plan {
namespace {

bool is_duration(double seconds) {
  return std::isfinite(seconds) && seconds > 0.0;
}

PlannedStep planned_step_in(const Json& object) {
  const auto text = [&](const char* key) { return printable(object.at(key).text()); };
  PlannedStep step{.low = object.at("low_s").number(),
                   .predicted = object.at("predicted_s").number(),
                   .high = object.at("high_s").number(),
                   .device = text("device"),
                   .network = text("network")};
  if (const Json* measured = object.find("measured_s")) step.measured = measured->number();
  return step;
}

}  // namespace

std::string write_planned_step(const PlannedStep& step) {
  Json object = Json::object({{"predicted_s", step.predicted},
                              {"low_s", step.low},
                              {"high_s", step.high},
                              {"device", step.device},
                              {"network", step.network}});
  if (step.measured) object["measured_s"] = *step.measured;
  return object.dump(2) + "\n";
}

PlannedStep read_planned_step(std::string_view text, const std::string& origin) {
  PlannedStep step;
  try {
    step = planned_step_in(Json::parse_unique(text));
  } catch (const JsonError& error) {
    throw ConfigError(
        fmt::format("{}: {}; a plan.json that trireme wrote was expected", origin, error.what()));
  }
  if (!is_duration(step.low) || !is_duration(step.predicted) || !is_duration(step.high) ||
      step.low > step.predicted || step.predicted > step.high ||
      !is_duration(step.measured.value_or(1.0))) {
    throw ConfigError(fmt::format(
        "{}: the seconds of a step must be above 0, with low_s <= predicted_s <= high_s", origin));
  }
  return step;
}

}  // namespace trireme::plan
