// What the keys of a configuration say about the learning rate's schedule.
#pragma once

#include <optional>

#include "trireme/config/config.h"
#include "trireme/optim/schedule.h"

namespace trireme {

// Returns nothing while run.steps, schedule.warmup or schedule.decay is in epochs. Throws
// ConfigError for a schedule.name that does not exist.
std::optional<optim::LearningRateOptions> schedule_options(const Config& config);

}  // namespace trireme
